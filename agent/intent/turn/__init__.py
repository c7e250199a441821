"""Decide whether a question is for the documents, for the world outside them, or for neither."""
