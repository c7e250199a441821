"""Documents held in memory, searchable without a database."""
