"""Take one question with its mentions of values: return its comparisons, negations, and words that point at fields."""
