"""A value of a field that a name in a question may mean, and how the name is related to it."""

from dataclasses import dataclass
from typing import Literal

MatchKind = Literal["exact", "alias", "stem", "short", "form", "part", "translated", "fuzzy", "code", "group", "flag"]
"""How a name is related to the value that it matches.

exact: as written; alias: declared; stem: another inflection, such as the plural; short: without words that all values
share; form: in another order or with initials; part: a part of it; translated: in another language or in other words;
fuzzy: misspelt; code: the value abbreviates the word; group: one of several values with a common name, for example a
domain of addresses; flag: the name of a field that is true or false.
"""

DISTANT: tuple[MatchKind, ...] = ("part", "fuzzy", "code", "group")
"""Relations of a name that is neither the whole value nor an inflection of it."""


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """A value of a field, reached by one of its names.

    Attributes:
        documents: number of documents with the value.
        share: the part of the value's letters that the name has, in (0, 1].
    """

    field: str
    value: str
    kind: MatchKind
    documents: int = 0
    share: float = 1.0
