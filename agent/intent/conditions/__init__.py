"""Take a question: return all conditions that it states on values, numbers, dates and flags, as filters."""
