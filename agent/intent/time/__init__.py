"""Dates in a question: period arithmetic, a grammar of date phrases, and the words of each language as data."""
