"""Chat takes a request of any door and returns its result after the advisors, the conversation and the record of it."""
