"""Who is told at the end of each question, with all that led to its answer."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from retrievers.core.errors import Unavailable

if TYPE_CHECKING:
    from agent.records.trace import Trace

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Called in the task of the question, so it returns at once and waits for nothing."""

    def answered(self, trace: "Trace") -> None:
        """A question was answered, or asked again from its record (`trace.replay_of`)."""
        ...

    def failed(self, error: Unavailable) -> None:
        """A question could not be answered."""
        ...


class Observers:
    """The observers of a service. What goes wrong in one of them is logged, and no answer's concern."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Tell it from now on."""
        self._observers.append(observer)

    def answered(self, trace: "Trace") -> None:
        """See `Observer.answered`."""
        for observer in self._observers:
            with _harmless(observer):
                observer.answered(trace)

    @contextmanager
    def question(self) -> Iterator[None]:
        """Around the answering of a question: tells of its failure, see `Observer.failed`."""
        try:
            yield
        except Unavailable as error:
            for observer in self._observers:
                with _harmless(observer):
                    observer.failed(error)
            raise


@contextmanager
def _harmless(observer: Observer) -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("%s failed", type(observer).__name__)
