"""Read files, uploads and records: return a document for each item, or the reason why it is refused."""
