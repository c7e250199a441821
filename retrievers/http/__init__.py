"""Shared by sources outside the database: an HTTP client, guarded page fetching, and answers as hits."""
