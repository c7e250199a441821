"""Read words, numbers and units of English and Chinese, independent of any collection."""
