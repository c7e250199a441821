"""Take the mentions of a question: return those that are conditions, each with a learned probability."""
