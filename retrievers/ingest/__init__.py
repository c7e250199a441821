"""Ingestion: read, split, analyse, embed and store documents."""
