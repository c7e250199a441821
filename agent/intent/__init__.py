"""Intent takes a question, its history and the catalogue of the collections and returns a checked reading."""
