"""The size of what is read, prepared and written at once."""

from collections.abc import Iterator
from itertools import islice

from retrievers.ingest.documents import Document, RejectedItem, count_characters
from retrievers.ingest.preparation import PreparedDocument

Numbered = tuple[int, Document | RejectedItem]
"""An item of the input, after its index."""

# A passage with more characters of terms, or a document with more values, counts as several in a batch. This limits the
# time of a transaction, for which all others that write to the collection wait.
_TERMS_CHARACTERS, _VALUES = 8000, 20


def next_items(items: Iterator[Numbered], most: int, characters: int) -> list[Numbered]:
    """Return the next items, at most `most`, and no more once they have this many characters."""
    taken: list[Numbered] = []
    for numbered in islice(items, most):
        taken.append(numbered)
        if isinstance(numbered[1], Document):
            characters -= count_characters(numbered[1])
        if characters <= 0:
            break
    return taken


def batch_weight(item: PreparedDocument) -> int:
    """Return how much a document adds to the size of a batch, as a number of ordinary passages."""
    values = sum(len(value) if isinstance(value, list) else 1 for value in item.fields.values())
    characters = sum(passage.packed_lexemes.characters for passage in item.passages)
    return max(1, len(item.passages), characters // _TERMS_CHARACTERS, values // _VALUES)
