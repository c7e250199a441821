"""Queue deliveries of documents, and let workers store them under a lease."""
