"""Chat takes a request and returns its result, running the advisors and keeping the conversation and the record."""
