"""Intent: what a question asks for, checked against the collections' catalogue."""
