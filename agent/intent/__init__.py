"""Intent: what a question asks for, checked against what exists."""
