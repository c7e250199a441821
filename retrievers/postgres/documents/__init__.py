"""Take a scope: return its documents, those under a filter, and found rows as hits; keep the indexes of vectors."""
