"""Observers: notified at the end of each question, with its trace."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from retrievers.core.errors import Unavailable

if TYPE_CHECKING:
    from agent.records.trace import Trace

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Interface of objects notified when a question ends. Its methods delay the answer, so they must return at once."""

    def on_answer(self, trace: "Trace") -> None:
        """Called when a question was answered or replayed. In a replay, `trace.replay_of` is not None."""
        ...

    def on_failure(self, error: Unavailable) -> None:
        """Called when a question could not be answered because something was unavailable."""
        ...


class Observers:
    """The observers of a service. An observer that raises is logged and does not affect the answer."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Register an observer."""
        self._observers.append(observer)

    def on_answer(self, trace: "Trace") -> None:
        """Notify all observers, see `Observer.on_answer`."""
        for observer in self._observers:
            with _log_errors(observer):
                observer.on_answer(trace)

    @contextmanager
    def notify_failure(self) -> Iterator[None]:
        """Call `on_failure` of all observers if the block, which answers a question, raises Unavailable."""
        try:
            yield
        except Unavailable as error:
            for observer in self._observers:
                with _log_errors(observer):
                    observer.on_failure(error)
            raise


@contextmanager
def _log_errors(observer: Observer) -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("%s failed", type(observer).__name__)
