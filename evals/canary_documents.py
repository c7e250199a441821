"""Make documents with canaries: words, numbers, dates and names that occur in no other document.

A canary in an answer tells which edition of which document was shown. The current and earlier readers (principals who
may read a document) are recorded here, so they tell whether the caller may know it. All tenants have the same
principals.
"""

import random
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from retrievers.core.types import Viewer

Json = dict[str, Any]

PRINCIPALS = tuple(f"user:{number}" for number in range(30)) + tuple(f"group:{number}" for number in range(10))
WORDS = ("turbine", "rotor", "bearing", "gearbox", "hub", "nacelle", "pitch", "tower")
OPEN = ("reports", "notes")
"""Collections that also have documents for everybody."""
CLOSED = 3
"""Number of collections whose documents all have readers, and whose names are canaries."""

_DOCUMENTS = {OPEN[0]: 14, OPEN[1]: 8}
_IN_A_CLOSED_ONE = 4
_LETTERS = "abcdefghi"
_FIRST_YEAR = 1100
# Analysis may cut endings, so a word is recognised without its last letter.
_WORD = re.compile(r"zq([a-i])(?:d(\d+)(?:e(\d+))?|c(\d+))", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)(7\d{6})\d{7}(?!\d)")
_DATE = re.compile(r"(?<!\d)(1[1-9]\d\d)-(\d\d)-(\d\d)")


@dataclass(frozen=True, slots=True, order=True)
class Canary:
    """What a found canary belongs to: an edition of a document, a document (edition -1), or a collection (number -1).

    Attributes:
        tenant: place of the tenant.
        collection: number of a collection with a canary name; -1 for a document.
    """

    tenant: int
    number: int = -1
    edition: int = -1
    collection: int = -1


def find_canaries(text: str) -> set[Canary]:
    """Return all canaries in a text, in whatever case."""
    found = set()
    for letter, number, edition, collection in _WORD.findall(text):
        tenant = _LETTERS.index(letter.lower())
        if collection:
            found.add(Canary(tenant, collection=int(collection)))
        else:
            found.add(Canary(tenant, int(number), int(edition or -1)))
    for match in _NUMBER.finditer(text):
        tenant, number, edition = int(match[1][1]), int(match[1][2:4]), int(match[1][4:])
        # Check digits tell a canary from an average of numbers that the caller may see.
        if match[0] == str(_number(tenant, number, edition)):
            found.add(Canary(tenant, number, edition))
    for year, month, day in _DATE.findall(text):
        try:
            days = (date(int(year), int(month), int(day)) - date(int(year) // 100 * 100, 1, 1)).days
        except ValueError:
            continue
        found.add(Canary(int(year) // 100 - _FIRST_YEAR // 100, days % 100, days // 100))
    return found


def _number(tenant: int, number: int, edition: int) -> int:
    """Return the canary of an edition: 14 digits, made of 7, tenant, document, edition and seven check digits."""
    said = f"7{tenant}{number:02}{edition:03}"
    return int(f"{said}{zlib.crc32(said.encode()) % 10_000_000:07}")


@dataclass(slots=True)
class CanaryDocument:
    """The state that a document should have in the service.

    Attributes:
        readers: principals who may read it; empty means everybody of the tenant.
        editions: for each edition all readers that it ever had; None in a set means everybody.
        stored: False after the document was deleted.
    """

    number: int
    collection: str
    readers: tuple[str, ...]
    editions: list[set[str | None]] = field(default_factory=list)
    stored: bool = True

    @property
    def edition(self) -> int:
        """Number of the current edition."""
        return len(self.editions) - 1


@dataclass(slots=True)
class CanaryTenant:
    """A tenant with the documents and readers that it should have in the service.

    Args:
        place: the tenant's place among all tenants, 0 to 8; its canaries contain it.
    """

    place: int
    name: str
    choose: random.Random
    documents: dict[int, CanaryDocument] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = _DOCUMENTS | {self.closed_collection(number): _IN_A_CLOSED_ONE for number in range(CLOSED)}
        for collection in (name for name, size in sizes.items() for _ in range(size)):
            number = len(self.documents)
            self.documents[number] = CanaryDocument(number, collection, self.some_readers(collection))

    def closed_collection(self, number: int) -> str:
        """Return the name of a collection without documents for everybody."""
        return f"closed zq{_LETTERS[self.place]}c{number}y"

    @property
    def collections(self) -> tuple[str, ...]:
        """The names of all collections."""
        return (*OPEN, *map(self.closed_collection, range(CLOSED)))

    def some_readers(self, collection: str) -> tuple[str, ...]:
        """Return random readers; in an open collection (), which means everybody, in three cases of ten."""
        if collection in OPEN and self.choose.random() < 0.3:
            return ()
        return tuple(sorted(self.choose.sample(PRINCIPALS, self.choose.choice((1, 1, 2, 3, 6)))))

    def viewers(self, count: int) -> list[Viewer]:
        """Return viewers with few and with many principals, the first with none."""
        sizes = [0, 40, *(self.choose.choice((1, 2, 3, 5, 12)) for _ in range(count - 2))]
        return [Viewer(self.name, tuple(sorted(self.choose.sample(PRINCIPALS, size)))) for size in sizes]

    def id(self, number: int) -> str:
        """Return a document's id, a canary of the document, which requests may name."""
        return f"id-zq{_LETTERS[self.place]}d{number}k"

    def record(self, kept: CanaryDocument) -> Json:
        """Return the current edition as a request stores it: canaries in all texts, values and names of fields."""
        number, edition = kept.number, kept.edition
        word = f"zq{_LETTERS[self.place]}d{number}e{edition}y"
        # A day in the tenant's century that no other edition of a document has.
        opened = date(_FIRST_YEAR + 100 * self.place, 1, 1) + timedelta(days=100 * edition + number)
        return {
            "id": self.id(number),
            "title": f"Report {word}",
            "text": f"The {WORDS[number % 8]} report {word} says that the rotor {WORDS[edition % 8]} stops.",
            "url": f"https://example.org/{word}",
            "important": [f"key {word}"],
            "questions": [f"What stops {word}?"],
            "metadata": {
                "owner": f"Owner {word}",
                "team": "red" if number % 2 else "blue",
                "cost": _number(self.place, number, edition),
                "opened": opened.isoformat(),
                f"field_{word}": number,
            },
            "readers": list(kept.readers),
        }

    def begin_edition(self, kept: CanaryDocument, readers: Sequence[str]) -> None:
        """Start an edition of a document, with new content and these readers."""
        kept.editions.append(set())
        self.change_readers(kept, readers)

    def change_readers(self, kept: CanaryDocument, readers: Sequence[str]) -> None:
        """Change the readers of the current edition."""
        kept.readers, kept.stored = tuple(readers), True
        kept.editions[-1] |= set(readers) or {None}

    def may_read(self, who: Viewer, kept: CanaryDocument) -> bool:
        """Return whether a viewer may read a document now."""
        return kept.stored and self._is_reader(who, kept)

    def _is_reader(self, who: Viewer, kept: CanaryDocument) -> bool:
        return who.tenant == self.name and (not kept.readers or bool(set(kept.readers) & set(who.principals)))

    def readable_documents(self, who: Viewer, collection: str | None = None) -> list[CanaryDocument]:
        """Return the documents a viewer may read, of one collection or all."""
        held = (kept for kept in self.documents.values() if collection in (None, kept.collection))
        return [kept for kept in held if self.may_read(who, kept)]

    def may_know(self, who: Viewer, one: Canary) -> bool:
        """Return whether a viewer may know a canary of this tenant.

        The readers of a deleted document may still know its canaries and the name of its collection, because answers
        from before the deletion contain them.
        """
        if who.tenant != self.name:
            return False
        if one.collection >= 0:
            name = self.closed_collection(one.collection)
            return any(kept.collection == name and self._is_reader(who, kept) for kept in self.documents.values())
        kept = self.documents[one.number]
        if not self._is_reader(who, kept):
            return False
        return one.edition < 0 or bool(kept.editions[one.edition] & {None, *who.principals})


def forbidden_canaries(
    tenants: Sequence[CanaryTenant], who: Viewer, text: str, said: Iterable[Canary]
) -> Iterator[Canary]:
    """Yield the canaries in a text that a viewer may not know.

    Args:
        said: canaries of the request itself, which an error may repeat.
    """
    for one in sorted(find_canaries(text) - set(said)):
        if one.tenant >= len(tenants):
            continue
        tenant = tenants[one.tenant]
        exists = one.number in tenant.documents and one.edition <= tenant.documents[one.number].edition
        if (one.collection >= 0 or exists) and not tenant.may_know(who, one):
            yield one
