"""Compare what a collection stores with what ingestion makes of its documents: return the errors, or repair them."""
