"""What an intent step hands on: a reading that is ready at once, and a better one that may still come."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.intent.sources import usual
from agent.llm.model import Calls
from agent.types import Intent, Request, SourceChoice
from retrievers.core.filters import Filter, to_json
from retrievers.core.types import Card, Scope
from retrievers.text.languages import detect

SURE = 0.9
"""Least probability at which a constraint filters."""
LIKELY = 0.5
"""Least probability at which it raises the documents that satisfy it; what is less likely is a topic."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One constraint read from a question, for the record of how an answer came about.

    Attributes:
        confidence: of who read it, 0 to 1.
        firm: whether it filters; what is only likely raises the documents that satisfy it.
        why: the evidence, in words; "" where nothing more is known than the probability.
    """

    filter: dict[str, Any]
    confidence: float
    firm: bool
    why: str = ""


@dataclass(slots=True)
class Transforms:
    """What query transformers did to the searches of a model's reading; filled while `Reading.later` runs.

    Attributes:
        vector_only: searches for vectors alone, with the transformer that made each.
        replaced: whether the searches stand in place of the first reading's, instead of beside them.
        degraded: what was skipped or gave nothing, in the words of `Result.degraded`.
    """

    vector_only: Mapping[str, str] = field(default_factory=dict)
    replaced: bool = False
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A question as it was understood.

    `firm` and `soft` are the constraints that were read from the question, each as a filter of its own and
    the weakest first, so that the ladder can drop one at a time. Those of the caller are in neither: they
    are never dropped.

    Attributes:
        first: ready at once. Its `filter` is the caller's and every firm constraint, its `soft_filter`
            every soft one.
        later: a model's reading, which replaces the first when it arrives; None from it when it could not
            be used. Its awaiter may give up at any time, by cancelling it.
        firm: what the question states outright.
        soft: what it only suggests.
        degraded: what the reading had to do without, in the words of `Result.degraded`.
        stated: the constraints of `firm` and `soft` with how sure each is, in the order of the question.
        calls: of the model, by this reading alone; filled while `later` runs.
        transforms: likewise.
        is_listing: whether nothing is asked beside the constraints of `firm`.
    """

    first: Intent
    later: Awaitable[Intent | None] | None = None
    firm: tuple[Filter, ...] = ()
    soft: tuple[Filter, ...] = ()
    degraded: tuple[str, ...] = ()
    stated: tuple[Stated, ...] = ()
    calls: Calls = field(default_factory=Calls)
    transforms: Transforms = field(default_factory=Transforms)
    is_listing: bool = False


class IntentReader(Protocol):
    """Anything that reads questions."""

    def over(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "IntentReader":
        """The reader of questions that may be put to these sources alone, by their cards.

        Args:
            withheld: names that no question is found to need, whether there is such a source or not.
        """
        ...

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """The question as understood.

        Args:
            wanted: the caller's filter, parsed; it is part of every intent's `filter`.
            deadline: end of the whole request, on the clock of `time.monotonic`.
        Raises:
            Unavailable: what the reading is made from cannot be read now, and nothing can be said without.
        """
        ...


@dataclass(frozen=True, slots=True)
class Off:
    """The reader that reads nothing into a question: the question is its own search.

    Args:
        sources: those to ask when the caller names none.
    """

    sources: Sequence[str]

    def over(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "Off":
        """See `IntentReader.over`."""
        return Off(usual(cards))

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """See `IntentReader.read`."""
        return Reading(stated_alone(request, scope, wanted, self.sources))


def stated_alone(request: Request, scope: Scope, wanted: Filter | None, sources: Sequence[str]) -> Intent:
    """The intent a caller states by the request alone.

    Args:
        wanted: the caller's filter, parsed.
        sources: the sources that exist, used when the caller names none.
    """
    question = request.question
    return Intent(
        question=question,
        language=question_language(question, scope),
        searches=(question,),
        collections=tuple(sorted({collection.name for collection in scope.all})),
        filter=to_json(wanted) if wanted else None,
        sources=tuple(
            SourceChoice(name=name, confidence=1.0, reason="named by the caller" if request.sources else "default")
            for name in dict.fromkeys(request.sources or sources)
        ),
        by="caller",
    )


def question_language(question: str, scope: Scope) -> str:
    """The question's language, among those of the collections: a short text alone is weak evidence."""
    written = {language for collection in scope.all for language in collection.languages}
    return detect(question, written or None)
