"""Retrieval takes the reading of a question and returns ranked hits and the outcome of each source."""
