"""The model's reading of a question: the request to the model, its reply, and the check against the catalogue."""
