"""The result of reading a question: a reading available at once, and a model's reading that may follow."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.intent.sources import default_sources
from agent.llm.call_log import CallLog
from agent.types import Intent, Request, SourceChoice
from retrievers.core.filters import Filter, filter_to_json
from retrievers.core.types import Card, Scope
from retrievers.text.languages import detect_language

FILTERS_FROM = 0.9
"""Minimum probability at which a constraint filters."""
BOOSTS_FROM = 0.5
"""Minimum probability at which a constraint boosts matching documents; a less likely one is only searched as words."""


@dataclass(frozen=True, slots=True)
class ConstraintRecord:
    """A constraint read from a question, as the record of how an answer came about shows it.

    Attributes:
        confidence: the reader's probability, 0 to 1.
        firm: True if it filters; False if it only boosts matching documents.
        why: the evidence for the constraint in words; "" if only the probability is known.
    """

    filter: dict[str, Any]
    confidence: float
    firm: bool
    why: str = ""


@dataclass(slots=True)
class TransformOutcome:
    """What query transformers did to the searches of a model's reading; filled while `Reading.later` runs.

    Attributes:
        vector_only: searches for vector sources only, each with the transformer that made it.
        replaced: True if the searches replace those of the first reading instead of adding to them.
        degraded: transformers that were skipped or gave nothing, in the words of `Result.degraded`.
    """

    vector_only: Mapping[str, str] = field(default_factory=dict)
    replaced: bool = False
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What was understood of a question: what to search or calculate, and under which constraints.

    `firm` and `soft` hold the constraints read from the question, one filter each, the weakest first, so that searches
    which find too little can drop one at a time. The caller's constraints are in neither: they are never dropped.

    Attributes:
        first: available at once. Its `filter` joins the caller's filter and every firm constraint; its `soft_filter`
            joins every soft one.
        later: a model's reading, which replaces the first when it arrives; its result is None if the model gave none.
            It may be cancelled at any time.
        firm: constraints that the question states outright.
        soft: constraints that the question only suggests.
        degraded: what the reading had to do without, in the words of `Result.degraded`.
        stated: the constraints of `firm` and `soft` with their probabilities, in the order of the question.
        calls: model calls of this reading; filled while `later` runs.
        transforms: what the query transformers did; filled while `later` runs.
        is_listing: True if the question consists of the constraints in `firm` only.
    """

    first: Intent
    later: Awaitable[Intent | None] | None = None
    firm: tuple[Filter, ...] = ()
    soft: tuple[Filter, ...] = ()
    degraded: tuple[str, ...] = ()
    stated: tuple[ConstraintRecord, ...] = ()
    calls: CallLog = field(default_factory=CallLog)
    transforms: TransformOutcome = field(default_factory=TransformOutcome)
    is_listing: bool = False


class IntentReader(Protocol):
    """Makes a `Reading` of the question in a request."""

    def with_sources(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "IntentReader":
        """Return a reader that may only choose these sources.

        Args:
            cards: cards of the sources by name.
            withheld: names that no reading may choose, whether such a source exists or not.
        """
        ...

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """Return the reading of the question in a request.

        Args:
            wanted: the caller's filter, parsed; it is part of every intent's `filter`.
            deadline: end of the whole request, on the clock of `time.monotonic`.
        Raises:
            Unavailable: data that every reading needs, such as the field catalogue, is unavailable.
        """
        ...


@dataclass(frozen=True, slots=True)
class LiteralReader:
    """Reader that infers no constraints or calculations: the question is searched as it is written.

    Args:
        sources: names of the sources to use if the caller names none.
    """

    sources: Sequence[str]

    def with_sources(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "LiteralReader":
        """See `IntentReader.with_sources`."""
        return LiteralReader(default_sources(cards))

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """See `IntentReader.read`."""
        return Reading(literal_intent(request, scope, wanted, self.sources))


def literal_intent(request: Request, scope: Scope, wanted: Filter | None, sources: Sequence[str]) -> Intent:
    """Return the intent that searches the question as it is written, with the filter and sources of the caller.

    Args:
        wanted: the caller's filter, parsed.
        sources: the available sources, used when the caller names none.
    """
    question = request.question
    return Intent(
        question=question,
        language=question_language(question, scope),
        searches=(question,),
        collections=tuple(sorted({collection.name for collection in scope.all_collections})),
        filter=filter_to_json(wanted) if wanted else None,
        sources=tuple(
            SourceChoice(name=name, confidence=1.0, reason="named by the caller" if request.sources else "default")
            for name in dict.fromkeys(request.sources or sources)
        ),
        by="caller",
    )


def question_language(question: str, scope: Scope) -> str:
    """Return the question's language (ISO 639-1), chosen among the languages of the documents if these are known.

    Without this choice, a short question would often be taken for another language.
    """
    written = {language for collection in scope.all_collections for language in collection.languages}
    return detect_language(question, written or None)
