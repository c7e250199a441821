"""Chat takes a request and returns its result, with the advisors, the memory and the record around it."""
