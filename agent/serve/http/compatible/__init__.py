"""Take requests in the form of another service: return passages or scores in the form of that service."""
