"""Answering takes ranked hits and returns a prompt with numbered citations, and the checked answer of a model."""
