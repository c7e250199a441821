"""Load ahead what the first question of a process would wait for: word lists, patterns, weights and the dictionary."""

from datetime import UTC, datetime
from functools import cache
from threading import Thread

from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from retrievers.core import process_memory
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.text import chinese_dictionary

_QUESTION = "notes of the Payments team from last year with a cost over 5"
"""Reading this question loads what names, dates, numbers and probabilities need, which takes half a second."""


@cache
def warm_up() -> Thread:
    """Start a thread that loads word lists, patterns, weights and the dictionary; later calls return the same thread.

    It is for a process that will answer many questions. The process does not wait for the thread when it exits. A
    question that arrives earlier loads what it needs itself.
    """
    thread = Thread(target=_read, name="reading ahead", daemon=True)
    thread.start()
    return thread


def _read() -> None:
    teams = FieldValues(Field("team", "string", "string"), {"Payments": 1, "Search": 2}, 2, 3)
    costs = FieldValues(Field("cost", "number", "number"), {}, 3, 3, 1, 9)
    days = FieldValues(Field("day", "date", "date"), {}, 3, 3, "2020-01-01", "2024-01-01")
    now = datetime.now(UTC)
    read_by_rules(
        _QUESTION,
        (),
        ReadingContext(
            FieldCatalogue((), 3, {"team": teams, "cost": costs, "day": days}),
            frozenset(),
            {},
            Calendar(now.date()),
            now,
        ),
    )
    chinese_dictionary.preload_dictionary().join()
    process_memory.freeze_objects()
