"""Read the properties of an Office file, such as its title and author."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LEFT_BY_PROGRAMS = frozenset({"openpyxl", "python-pptx", "PowerPoint Presentation", "generated using python-pptx"})
"""Placeholders that programs write if nobody entered a title or an author."""


@dataclass(frozen=True, slots=True)
class OfficeProperties:
    """Title, author, date of the last change, keywords and description, as far as they are stated.

    Attributes:
        metadata: values under the names that HTML pages use: author, date, keywords, description. Missing ones are
            left out.
    """

    title: str
    metadata: Mapping[str, str]


def read_properties(stated: Any) -> OfficeProperties:
    """Return the core properties of a file.

    Args:
        stated: the object of python-pptx or openpyxl; they differ in the names of the author and the description.
    """
    moment = getattr(stated, "modified", None) or getattr(stated, "created", None)
    given = {
        "author": getattr(stated, "author", None) or getattr(stated, "creator", None),
        "date": moment.date().isoformat() if moment else None,
        "keywords": getattr(stated, "keywords", None),
        "description": getattr(stated, "description", None) or getattr(stated, "comments", None),
    }
    return OfficeProperties(
        _said(stated.title), {name: text for name, value in given.items() if (text := _said(value))}
    )


def _said(value: Any) -> str:
    text = " ".join(str(value or "").split())
    return "" if text in _LEFT_BY_PROGRAMS else text
