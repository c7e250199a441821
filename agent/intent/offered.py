"""What a reading names under a caller's filter: only values that documents inside it hold.

The catalogue knows the values of whole collections. A caller whose filter is fixed is not told those of documents
outside it: neither as candidates, nor as the full name or the right spelling of what the question says.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.intent import rules
from agent.intent.filters import Json
from agent.intent.rejected import RejectedValue
from agent.intent.rules import Context, RulesReading
from agent.intent.text import readable
from agent.types import Message, Rejected
from retrievers.core.errors import Unavailable
from retrievers.core.filters import Filter
from retrievers.core.tasks import within
from retrievers.core.types import FieldCatalogue, FieldValues, Scope
from retrievers.postgres.catalogue import Catalogue
from retrievers.text.folding import fold

_SHARE = 0.2
"""Of the time left that a look at the documents may take."""
_MOST_READINGS = 3
_MOST_VALUES = 100
_MOST_DOCUMENTS = 2000
"""Values of a field, and documents inside the filter, of which a model is shown values."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Judges what may be named.

    Args:
        wanted: the caller's filter.
        deadline: end of the request, on the clock of `time.monotonic`.
    """

    catalogue: Catalogue
    scope: Scope
    wanted: Filter
    deadline: float

    async def in_rules(
        self,
        made: RulesReading,
        history: Sequence[Message],
        context: Context,
        again: Callable[[Context], Awaitable[RulesReading]],
        *,
        readings: int = _MOST_READINGS,
    ) -> RulesReading:
        """The rules' reading; the database is asked only where it names what the turns do not say.

        Args:
            again: reads in another context: as if the values that only documents outside hold did not exist.
            readings: at most so many more.
        """
        # Folding a long conversation is more than the event loop can wait for.
        said = await asyncio.to_thread(_said, [made.question, *(turn.content for turn in history)])
        guesses = {place: list(_unsaid(piece.filter, said, context)) for place, piece in enumerate(made.pieces)}
        calculated = list(_unsaid((made.aggregate or {}).get("where"), said, context))
        candidates = [(field, value) for pairs in (*guesses.values(), calculated) for field, value in pairs]
        candidates += [
            (field, value)
            for stated in made.rejected
            if isinstance(stated, RejectedValue)
            for one in (stated, *(stated.instead or ()))
            for field in one.fields
            for value in one.valid
        ]
        if not candidates:
            return made
        asked: dict[str, set[str]] = {}
        for field, value in candidates:
            asked.setdefault(field, set()).add(value)
        held = await self._held(asked)
        rejected = dict.fromkeys(said for one in made.rejected for said in _narrowed(one, held))
        made = replace(made, rejected=tuple(rejected))
        outside = [place for place, pairs in guesses.items() if not _are_held(pairs, held)]
        if not outside and _are_held(calculated, held):
            return made
        if readings:
            context = _without({field: values - set(held.get(field, ())) for field, values in asked.items()}, context)
            return await self.in_rules(await again(context), history, context, again, readings=readings - 1)
        return rules.without(made, [made.pieces[place] for place in outside], context)

    async def for_model(self, catalogue: FieldCatalogue) -> FieldCatalogue:
        """The catalogue with the values that a model may see and name, and without ranges."""
        asked = {
            name: list(one.values)[:_MOST_VALUES]
            for name, one in catalogue.fields.items()
            if one.field.item == "string"
        }
        held = await self._held(asked, most_documents=_MOST_DOCUMENTS)
        fields = {name: _inside(one, held.get(name, {})) for name, one in catalogue.fields.items()}
        return replace(catalogue, fields=fields)

    async def _held(
        self, candidates: Mapping[str, Collection[str]], *, most_documents: int | None = None
    ) -> Mapping[str, Mapping[str, int]]:
        """The candidates that documents inside the filter hold; none where that cannot be told in time."""
        work = self.catalogue.values_within(self.scope, self.wanted, candidates, most_documents=most_documents)
        try:
            return await within(work, _SHARE * (self.deadline - time.monotonic()))
        except (TimeoutError, ConnectionAbortedError, Unavailable):
            return {}


def _said(turns: Sequence[str]) -> str:
    """What rules read of the turns, folded."""
    return " ".join(fold(readable(turn)) for turn in turns)


def _unsaid(filter: Json | None, said: str, context: Context) -> Iterator[tuple[str, str]]:
    """Values of texts in a filter that the turns do not hold as they are, with their fields."""
    if filter is None:
        return
    for inner in filter.get("filters") or ([filter["filter"]] if "filter" in filter else ()):
        yield from _unsaid(inner, said, context)
    field = context.catalogue.fields.get(filter.get("key", ""))
    if field is not None and field.field.item == "string":
        given = filter.get("value")
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, str) and fold(value) not in said:
                yield field.field.name, value


def _are_held(pairs: Sequence[tuple[str, str]], held: Mapping[str, Mapping[str, int]]) -> bool:
    return all(value in held.get(field, ()) for field, value in pairs)


def _narrowed(one: Rejected, held: Mapping[str, Mapping[str, int]]) -> tuple[Rejected, ...]:
    """What is said of it inside the filter. That a name has several bearers is said only of those inside."""
    if not isinstance(one, RejectedValue):
        return (one,)
    valid = tuple(value for value in one.valid if any(value in held.get(field, ()) for field in one.fields))
    if one.instead is not None and len(valid) < 2:
        return tuple(said for other in one.instead for said in _narrowed(other, held))
    return (one.model_copy(update={"valid": valid}),)


def _without(values: Mapping[str, Collection[str]], context: Context) -> Context:
    """The context in which values do not exist."""
    fields = dict(context.catalogue.fields)
    for name, gone in values.items():
        one = fields[name]
        kept = {value: count for value, count in one.values.items() if value not in gone}
        fields[name] = replace(_inside(one, kept), low=one.low, high=one.high, distinct=one.distinct - len(gone))
    more = [one for one in context.more if one[1] not in values.get(one[0], ())]
    return replace(context, catalogue=replace(context.catalogue, fields=fields), more=more)


def _inside(one: FieldValues, held: Mapping[str, int]) -> FieldValues:
    return replace(
        one,
        values=dict(sorted(held.items(), key=lambda item: (-item[1], item[0])))
        if one.field.item == "string"
        else one.values,
        low=None,
        high=None,
        aliases={alias: value for alias, value in one.aliases.items() if value in held},
        spellings={folded: same for folded, same in one.spellings.items() if all(value in held for value in same)},
    )
