"""Days that a question names: arithmetic of periods, a grammar of phrases, and words per language as data."""
