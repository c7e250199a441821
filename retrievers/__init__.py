"""Retrievers, one file each, and what they stand on: types, text analysis, embedders, storage, ingestion."""
