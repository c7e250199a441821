"""Map text offsets to places in a file: pages, slides, or rows of a sheet."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["page", "slide", "row"]


@dataclass(frozen=True, slots=True)
class FilePositions:
    """The pages, slides or rows that a text comes from.

    Attributes:
        marks: (offset in characters, number from 1) of the start of each page, slide or row, both rising. Text before
            the first mark belongs to the first page, slide or row.
        sheet: name of the sheet that has the rows; "" for pages and slides.
    """

    unit: Unit
    marks: tuple[tuple[int, int], ...]
    sheet: str = ""

    def covering(self, start: int, end: int) -> "FilePositions":
        """Return the places of the characters [start, end), at least that of `start`. Their offsets do not change."""
        # Binary search, because a sheet has tens of thousands of rows.
        first = max(bisect_right(self.marks, start, key=_beginning) - 1, 0)
        last = bisect_left(self.marks, end, lo=first + 1, key=_beginning)
        return FilePositions(self.unit, self.marks[first:last], self.sheet)

    def shifted(self, characters: int) -> "FilePositions":
        """Return the places after this number of characters was put before the text or, if negative, cut from it."""
        # Of several marks at one offset, all but the last belong to pages, slides or rows without text.
        moved = {max(at + characters, 0): number for at, number in self.marks}
        return FilePositions(self.unit, tuple(moved.items()), self.sheet)

    def to_json(self) -> dict[str, Any]:
        """Return the stored JSON form, which `positions_from_json` reads back."""
        sheet = {"sheet": self.sheet} if self.sheet else {}
        return {"unit": self.unit, "marks": [list(mark) for mark in self.marks], **sheet}


def _beginning(mark: tuple[int, int]) -> int:
    return mark[0]


def positions_from_json(stored: Mapping[str, Any] | None) -> FilePositions | None:
    """Return the places that `FilePositions.to_json` wrote; None for None."""
    if stored is None:
        return None
    return FilePositions(stored["unit"], tuple((at, number) for at, number in stored["marks"]), stored.get("sheet", ""))


def describe_positions(places: Sequence[FilePositions | None]) -> str:
    """Describe where consecutive passages stand: "page 3", "slides 2-4", "sheet Prices, rows 7-12"; "" if unknown."""
    known = [one for one in places if one is not None]
    numbers = [number for one in known for _, number in one.marks]
    if not numbers:
        return ""
    first, last = min(numbers), max(numbers)
    sheet = f"sheet {known[0].sheet}, " if known[0].sheet else ""
    return f"{sheet}{known[0].unit} {first}" if first == last else f"{sheet}{known[0].unit}s {first}-{last}"


def first_page(places: Iterable[FilePositions | None]) -> int | None:
    """Return the number of the page on which the first of consecutive passages begins; None if there are no pages."""
    return next((one.marks[0][1] for one in places if one is not None and one.unit == "page"), None)
