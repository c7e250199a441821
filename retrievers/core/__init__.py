"""Types, errors and the filter grammar that all retrievers share. Nothing in this package knows a database."""
