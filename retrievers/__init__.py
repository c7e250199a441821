"""Retrievers, one module or package each, and their foundations: types, text analysis, embedders, storage."""
