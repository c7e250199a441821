"""Records takes the decisions behind a result and returns a stored trace, or the differences of a replay."""
