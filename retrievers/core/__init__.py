"""What every retriever shares: types, errors and the filter grammar. Nothing here knows a database."""
