"""Know what the values and fields of a collection are called: return the values that the words of a question name."""
