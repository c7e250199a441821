"""Records takes the decisions behind a result and returns a stored trace, or what a replay changed."""
