"""Parsers of settings and request options: text in, checked value out."""
