"""Text analysis and splitting: pure functions, the same for documents and questions."""
