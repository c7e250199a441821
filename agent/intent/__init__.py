"""Read a question, its history and the field catalogue: return the filters, searches, sources and calculation meant."""
