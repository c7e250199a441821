"""Documents in: read, split, analyse, embed, store."""
