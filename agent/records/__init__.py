"""Records takes what a question led to and returns its stored trace, and the result of running it again."""
