"""Keep a reading from naming values that only documents outside the caller's filter have.

The catalogue knows the values of whole collections. If the caller's filter is fixed, values that occur only in
documents outside it are not revealed: neither as candidates, nor as the full name or correct spelling of words in the
question.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.intent import rules_reader
from agent.intent.conditions.filter_json import Json
from agent.intent.language.text import readable
from agent.intent.rejections import RejectedValue
from agent.intent.rules_reader import ReadingContext, RulesReading
from agent.intent.values import vocabulary
from agent.options import deadline_shares
from agent.types import Message, Rejected
from retrievers.core.errors import Unavailable
from retrievers.core.filters import Filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import FieldCatalogue, FieldValues, Scope
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.text.folding import fold

_MOST_READINGS = 3
_MOST_VALUES = 100
_MOST_DOCUMENTS = 2000
"""Maximum values per field that a model sees. It sees none if more than 2,000 documents satisfy the filter."""


@dataclass(frozen=True, slots=True)
class ValueGuard:
    """Keeps a reading from naming values that no document inside the caller's filter has.

    Args:
        wanted: the caller's filter.
        deadline: end of the request, on the clock of `time.monotonic`.
    """

    catalogue: Catalogue
    scope: Scope
    wanted: Filter
    deadline: float

    async def check_rules_reading(
        self,
        made: RulesReading,
        history: Sequence[Message],
        context: ReadingContext,
        again: Callable[[ReadingContext], Awaitable[RulesReading]],
        *,
        readings: int = _MOST_READINGS,
    ) -> RulesReading:
        """Return the rules' reading without values outside the filter.

        The database is asked only about values that neither the question nor `history` contains literally, and about
        a document that others are compared with. If no document inside the filter has such a value, the question is
        read again as if the value did not exist.

        Args:
            made: the rules' reading, made in `context`.
            again: reads the question in another context.
            readings: how many times to read again; after that the constraints are dropped instead.
        """
        # In a thread, because folding a long conversation would block the event loop for too long.
        said = await asyncio.to_thread(_folded_turns, [made.question, *(turn.content for turn in history)])
        guesses = {
            place: list(_unstated_values(condition.filter, said, context))
            for place, condition in enumerate(made.conditions)
        }
        aggregate = made.aggregate or {}
        calculated = [*_unstated_values(aggregate.get("where"), said, context)]
        # A comparison says what a document has, also one outside the filter that the question names.
        calculated += _unstated_values((aggregate.get("than") or {}).get("record"), "", context)
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
        held = await self._values_inside_filter(asked)
        rejected = dict.fromkeys(said for one in made.rejected for said in _narrow_rejection(one, held))
        made = replace(made, rejected=tuple(rejected))
        outside = [place for place, pairs in guesses.items() if not _all_exist(pairs, held)]
        if not outside and _all_exist(calculated, held):
            return made
        if readings:
            gone = {field: values - set(held.get(field, ())) for field, values in asked.items()}
            context = await asyncio.to_thread(_without_values, gone, context)
            return await self.check_rules_reading(await again(context), history, context, again, readings=readings - 1)
        return rules_reader.drop_conditions(made, [made.conditions[place] for place in outside], context)

    async def catalogue_for_model(self, catalogue: FieldCatalogue) -> FieldCatalogue:
        """Return the catalogue for a model: values of documents inside the filter, no ranges of numbers or dates."""
        asked = {
            name: list(one.values)[:_MOST_VALUES]
            for name, one in catalogue.fields.items()
            if one.field.item == "string"
        }
        held = await self._values_inside_filter(asked, most_documents=_MOST_DOCUMENTS)
        fields = {name: _with_values(one, held.get(name, {})) for name, one in catalogue.fields.items()}
        return await asyncio.to_thread(vocabulary.narrowed_catalogue, catalogue, fields)

    async def _values_inside_filter(
        self, candidates: Mapping[str, Collection[str]], *, most_documents: int | None = None
    ) -> Mapping[str, Mapping[str, int]]:
        """Return {field: {value: documents inside the filter}} of candidates; {} if the lookup is late or fails."""
        work = self.catalogue.count_filtered_values(self.scope, self.wanted, candidates, most_documents=most_documents)
        try:
            return await wait_within(work, deadline_shares.VALUE_LOOKUP * (self.deadline - time.monotonic()))
        except (TimeoutError, ConnectionAbortedError, Unavailable):
            return {}


def _folded_turns(turns: Sequence[str]) -> str:
    """Return the text of all turns, as far as rules read it, folded for comparison."""
    return " ".join(fold(readable(turn)) for turn in turns)


def _unstated_values(filter: Json | None, said: str, context: ReadingContext) -> Iterator[tuple[str, str]]:
    """Yield (field, value) for text values of a filter that do not occur literally in `said`, the folded turns."""
    if filter is None:
        return
    for inner in filter.get("filters") or ([filter["filter"]] if "filter" in filter else ()):
        yield from _unstated_values(inner, said, context)
    field = context.catalogue.fields.get(filter.get("key", ""))
    if field is not None and field.field.item == "string":
        given = filter.get("value")
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, str) and fold(value) not in said:
                yield field.field.name, value


def _all_exist(pairs: Sequence[tuple[str, str]], held: Mapping[str, Mapping[str, int]]) -> bool:
    return all(value in held.get(field, ()) for field, value in pairs)


def _narrow_rejection(one: Rejected, held: Mapping[str, Mapping[str, int]]) -> tuple[Rejected, ...]:
    """Return (a rejection,) in which `valid` lists only values in `held`, {field: {value: documents}}.

    If fewer than two are left for an ambiguous name, return the narrowed rejections of its `instead`, perhaps none.
    """
    if not isinstance(one, RejectedValue):
        return (one,)
    valid = tuple(value for value in one.valid if any(value in held.get(field, ()) for field in one.fields))
    if one.instead is not None and len(valid) < 2:
        return tuple(said for other in one.instead for said in _narrow_rejection(other, held))
    return (one.model_copy(update={"valid": valid}),)


def _without_values(values: Mapping[str, Collection[str]], context: ReadingContext) -> ReadingContext:
    """Return the context as if these values, by field, did not exist."""
    fields = dict(context.catalogue.fields)
    for name, gone in values.items():
        one = fields[name]
        kept = {value: count for value, count in one.values.items() if value not in gone}
        fields[name] = replace(_with_values(one, kept), low=one.low, high=one.high, distinct=one.distinct - len(gone))
    more = [one for one in context.more if one[1] not in values.get(one[0], ())]
    return replace(context, catalogue=vocabulary.narrowed_catalogue(context.catalogue, fields), more=more)


def _with_values(one: FieldValues, held: Mapping[str, int]) -> FieldValues:
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
