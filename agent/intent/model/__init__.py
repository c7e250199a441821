"""A model's reading of a question: what it is asked, what its reply says, and which of that exists."""
