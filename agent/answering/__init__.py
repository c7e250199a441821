"""Answering takes ranked hits and returns a prompt with numbered citations, or a model's checked answer."""
