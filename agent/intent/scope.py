"""Which collections a question is about, where it names none: what each of them holds beside what is asked.

The evidence is of words, of values and of meaning. A multinomial logistic regression weighs it;
`evals/train_scope.py` makes its weights. The likeliest collections that are right with `_SURE` together are searched:
one where the evidence is decisive, several where they tie, all where it says nothing.
"""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.intent import lexicon
from agent.intent.text import readable
from agent.types import Request, SourceChoice
from retrievers.core.errors import Unavailable
from retrievers.core.fields import RESERVED
from retrievers.core.tasks import within
from retrievers.core.types import Collection, Hit, Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.values import Held
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.languages import detect
from retrievers.text.questions import question_terms

_SURE = {"vector": 0.85, "fulltext": 0.95}
"""Least probability together of the collections that are searched, by the source that says which passages are near: by
words alone, and across languages, it is overestimated for collections that the weights were not learned from."""
_NEAREST = 50
"""Passages that are looked at for their collections."""
_FEW = 0.03
"""Share of passages, or of documents with a value, below which a word says nothing."""
_MOST_VALUES = 2000
"""Of a collection, shared among its fields."""
_MOST_PROFILES = 256
_TURNS = 2
"""Earlier turns of the asker that a question may rest on."""
_SHARE = 0.2
"""Of the request's time that the choice may take."""

Numbers = NDArray[np.float64]

LET_GO = "the question names no collection, and what it asks for was not found in those that were chosen for it"
"""The reason in `Result.relaxed`."""
EVIDENCE = (
    "its passages hold the question's words",
    "its fields hold the question's words",
    "the question names it",
    "the question names its fields or what it is described by",
    "its passages are near",
    "its description is near in meaning",
)
"""What each column of `features` says."""
WEIGHTS: Mapping[str, Sequence[float]] = {
    "vector": (0.4, 1.15, 4.2, 2.1, 16.2, 7.8),
    "fulltext": (0.0, 1.2, 4.4, 0.85, 0.17, 6.3),
}
"""Of the columns, by the source that says which passages are near: vectors may not know the question's language, and
some of the collections may have others."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What collections of one name hold, as a question is compared with it.

    Attributes:
        passages: how many there are.
        values: share of the documents that have a value with a term, by term.
        called, fields: terms of its name and of what its documents are called; of the names of its fields and of its
            description.
        card: it in a line, of which a vector is made.
    """

    numbers: tuple[int, ...]
    passages: int
    values: Mapping[str, float]
    called: frozenset[str]
    fields: frozenset[str]
    card: str


class Evidence(NamedTuple):
    """What speaks for each of the collections `names`: columns as of `EVIDENCE`, shape (collections, columns).

    Attributes:
        near: the source that said which passages are near.
    """

    names: Sequence[str]
    columns: Numbers
    near: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The collections to search: `scope` holds these alone, and `collections` says why, the likeliest first."""

    scope: Scope
    collections: tuple[SourceChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses among the collections of a scope.

    Args:
        sources: of documents, by name.
    """

    catalogue: Catalogue
    embedder: Embedder
    sources: Mapping[str, Retriever]
    _profiles: OrderedDict[tuple[Hashable, ...], Profile] = field(default_factory=OrderedDict)
    _cards: OrderedDict[str, Numbers] = field(default_factory=OrderedDict)

    async def choose(self, request: Request, scope: Scope, deadline: float) -> Choice:
        """The collections that a request is about, the whole scope where it says or there is only one.

        What the database or the embedder does not tell in time is left out of the evidence.

        Args:
            deadline: end of the whole request, on the clock of `time.monotonic`.
        """
        several = len({one.name for one in scope.collections if one.chunks}) > 1
        if request.collection is not None or request.complete or not several:
            return Choice(scope)
        try:
            telling = self.evidence(request, scope)
            return decided(scope, await within(telling, _SHARE * (deadline - time.monotonic())))
        except (TimeoutError, Unavailable, OSError):
            return Choice(scope)

    async def evidence(self, request: Request, scope: Scope) -> Evidence:
        """What speaks for each collection that holds something."""
        names = list(dict.fromkeys(one.name for one in scope.collections if one.chunks))
        turns = [turn.content for turn in request.history if turn.role == "user"][-_TURNS:]
        text = readable(" ".join((*turns, request.question)))
        gloss = glosses.in_english(text) if glosses.is_chinese(text) else ""
        terms = question_terms(text, detect(text), gloss)
        held = {one.number: one for one in await self.catalogue.held(scope)}
        profiles = []
        for name in names:
            profiles.append(await self._profile(scope, [one for one in scope.collections if one.name == name], held))
        counts = await self.catalogue.term_counts(scope, terms)
        known = Embedders.of(self.embedder).languages_in(scope)
        knows = not gloss or known is None or "zh" in known
        asked = Query(text, detect(text), scope, limit=_NEAREST, gloss="" if knows else gloss)
        same = len({one.embedder for one in scope.collections if one.chunks}) == 1
        source = "vector" if knows and same else "fulltext"
        near, likeness = await self._near(asked, names, source), await self._likeness(asked, profiles)
        return Evidence(names, np.column_stack((named(terms, profiles, counts), near, likeness)), source)

    async def _near(self, asked: Query, names: Sequence[str], source: str) -> Numbers:
        """The score of the best passage of each collection; of one that has none of the first, at most theirs."""
        hits: Sequence[Hit] = ()
        if source in self.sources:
            with suppress(Unavailable):
                hits = await self.sources[source].search(asked)
        best = {hit.id.collection: hit.score for hit in reversed(hits)}
        lowest = hits[-1].score if len(hits) == _NEAREST else 0.0
        return np.array([best.get(name, lowest) for name in names])

    async def _likeness(self, asked: Query, profiles: Sequence[Profile]) -> Numbers:
        """Cosine of the question to the card of each collection."""
        try:
            missing = [one.card for one in profiles if one.card not in self._cards]
            if missing:
                self._cards.update(zip(missing, await self.embedder.embed(missing), strict=True))
            question = await self.embedder.embed_query(asked.gloss or asked.text)
            likeness = np.array([float(self._cards[one.card] @ question) for one in profiles])
        except Unavailable:
            return np.zeros(len(profiles))
        while len(self._cards) > _MOST_PROFILES:
            self._cards.popitem(last=False)
        return likeness

    async def _profile(self, scope: Scope, same: Sequence[Collection], held: Mapping[int, Held]) -> Profile:
        """The profile of the collections of one name, kept as long as they do not change."""
        numbers = [number for one in same for number in (one.number, *(part for part, _ in one.parts))]
        known = [held[number] for number in numbers if number in held]
        versions = tuple((one.number, one.version) for one in known)
        key = (scope.tenant == same[0].tenant, scope.changed, same[0].name, versions)
        if key not in self._profiles:
            called = await self.catalogue.called(replace(scope, collections=tuple(same)))
            self._profiles[key] = await asyncio.to_thread(profile_of, same, known, called or "")
            while len(self._profiles) > _MOST_PROFILES:
                self._profiles.popitem(last=False)
        return self._profiles[key]


def profile_of(same: Sequence[Collection], held: Sequence[Held], called: str = "") -> Profile:
    """The profile of collections of one name.

    Args:
        held: what their fields hold.
        called: what their documents are called by their ids.
    """
    languages = Counter[str]()
    for collection in same:
        languages.update(collection.languages)
    language = next((name for name, _ in languages.most_common(1)), "en")
    documents = max(sum(one.documents for one in held), 1)
    shares: dict[str, float] = {}
    names = dict.fromkeys(name for one in held for name in one.values if name not in RESERVED)
    values = [one for known in held for one in known.values.values() if one.field.item == "string"]
    each = max(_MOST_VALUES // max(len(values), 1), 1)
    for one in values:
        own = Counter[str]()
        for value, count in list(one.values.items())[:each]:
            names_of_it = " ".join((value, *one.field.aliases.get(value, ())))
            for term in {term.text for term in analyse(names_of_it, language)}:
                own[term] += count
        for term, count in own.items():
            shares[term] = max(shares.get(term, 0.0), min(count / documents, 1.0))
    description = next((one.description for one in same if one.description), "")
    return Profile(
        tuple(one.number for one in same),
        max(sum(one.chunks for one in same), 1),
        shares,
        _terms((same[0].name, called, *(word for one in held for word in one.records)), language),
        _terms((*names, description), language),
        f"{same[0].name}. {description or ', '.join(names)}",
    )


def _terms(names: Sequence[str], language: str) -> frozenset[str]:
    words = " ".join(word for name in names for word in lexicon.name_words(name))
    return frozenset(term.text for term in analyse(words, language))


def named(terms: Mapping[str, float], profiles: Sequence[Profile], counts: Mapping[int, Mapping[str, int]]) -> Numbers:
    """The evidence of words; shape (collections, 4).

    Args:
        terms: of the question, with their shares.
        counts: in how many passages each term occurs, by the number of the collection.
    """
    rows = []
    for one in profiles:
        words = values = called = fields = 0.0
        for term, share in terms.items():
            holding = sum(counts.get(number, {}).get(term, 0) for number in one.numbers) / one.passages
            words += share * math.log(holding + _FEW)
            values += share * math.log((max(holding, one.values.get(term, 0.0)) + _FEW) / (holding + _FEW))
            called += share * (term in one.called)
            fields += share * (term in one.fields)
        rows.append((words, values, called, fields))
    return np.array(rows)


def decided(scope: Scope, evidence: Evidence) -> Choice:
    """The likeliest collections that are right with `_SURE` together, each with the evidence that says most for it."""
    weighed = evidence.columns * np.array(WEIGHTS[evidence.near])
    logits = weighed.sum(axis=1)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    # What is said for a collection is said beside the others.
    reasons = (weighed - weighed.mean(axis=0)).argmax(axis=1)
    chosen: list[SourceChoice] = []
    reached = 0.0
    for place in np.argsort(-probabilities, kind="stable"):
        if reached >= _SURE[evidence.near]:
            break
        reached += float(probabilities[place])
        confidence = round(float(probabilities[place]), 4)
        chosen.append(SourceChoice(name=evidence.names[place], confidence=confidence, reason=EVIDENCE[reasons[place]]))
    if len(chosen) == len(evidence.names):
        return Choice(scope)
    return Choice(scope.only(one.name for one in chosen), tuple(chosen))
