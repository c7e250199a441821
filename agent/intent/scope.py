"""Which collections a question is about, where it names none: what each of them holds beside what is asked.

The evidence is of words, of values and of meaning. A multinomial logistic regression weighs it;
`evals/train_scope.py` makes its weights. The likeliest collections that are right with `_SURE` together are searched:
one where the evidence is decisive, several where they tie, all where it says nothing.
"""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
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
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.values import Held
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.folding import fold
from retrievers.text.languages import detect
from retrievers.text.questions import question_terms

_SURE = 0.8
_NEAREST = 50
"""Passages that are looked at for their collections."""
_FEW = 0.03
"""Share of passages, or of documents with a value, below which a word says nothing."""
_MOST_VALUES = 2000
"""Of a collection, shared among its fields."""
_MOST_PROFILES = 256
_LONGEST_SPAN, _LONGEST_RUN = 4, 8
"""Words, and Chinese characters, of the longest value that is looked for as a whole."""
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
    "the question names its fields",
    "the question names a value that it holds",
    "its passages are near in meaning",
    "its description is near in meaning",
)
"""What each column of `features` says."""
WEIGHTS = (0.26, 1.07, 2.18, 2.30, 1.02, 14.43, 8.62)


@dataclass(frozen=True, slots=True)
class Profile:
    """What collections of one name hold, as a question is compared with it.

    Attributes:
        passages: how many there are.
        values: share of the documents that have a value with a term, by term.
        whole: whole values, folded.
        called, fields: terms of its name and of what its documents are called; of the names of its fields.
        card: it in a line, of which a vector is made.
    """

    numbers: tuple[int, ...]
    passages: int
    values: Mapping[str, float]
    whole: frozenset[str]
    called: frozenset[str]
    fields: frozenset[str]
    card: str


class Said(NamedTuple):
    """What a question says: its terms with their shares, and the runs of words that may be values."""

    terms: Mapping[str, float]
    spans: frozenset[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The collections to search: `scope` holds these alone, and `collections` says why, the likeliest first."""

    scope: Scope
    collections: tuple[SourceChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses among the collections of a scope.

    Args:
        nearest: the source that searches by meaning; None where there is none.
    """

    catalogue: Catalogue
    embedder: Embedder
    nearest: Retriever | None
    _profiles: OrderedDict[tuple[bool, str, tuple[tuple[int, int], ...]], Profile] = field(default_factory=OrderedDict)
    _cards: OrderedDict[str, Numbers] = field(default_factory=OrderedDict)

    async def choose(self, request: Request, scope: Scope, deadline: float) -> Choice:
        """The collections that a request is about, the whole scope where it says or there is only one.

        What the database or the embedder does not tell in time is left out of the evidence.

        Args:
            deadline: end of the whole request, on the clock of `time.monotonic`.
        """
        names = names_of(scope)
        if request.collection is not None or request.complete or len(names) < 2:
            return Choice(scope)
        try:
            telling = self.evidence(request, scope)
            return decided(scope, names, await within(telling, _SHARE * (deadline - time.monotonic())))
        except (TimeoutError, Unavailable, OSError):
            return Choice(scope)

    async def evidence(self, request: Request, scope: Scope) -> Numbers:
        """What speaks for each of `names_of` the scope, see `features`."""
        names = names_of(scope)
        turns = [turn.content for turn in request.history if turn.role == "user"][-_TURNS:]
        text = readable(" ".join((*turns, request.question)))
        gloss = glosses.in_english(text) if glosses.is_chinese(text) else ""
        said = said_in(text, gloss)
        held = {one.number: one for one in await self.catalogue.held(scope)}
        profiles = []
        for name in names:
            profiles.append(await self._profile(scope, [one for one in scope.collections if one.name == name], held))
        counts = await self.catalogue.term_counts(scope, said.terms)
        knows = self.embedder.languages is None or "zh" in self.embedder.languages
        asked = Query(text, "en" if gloss else detect(text), scope, limit=_NEAREST, gloss="" if knows else gloss)
        near = await self._near(asked, names)
        return features(said, profiles, counts, near, await self._likeness(asked, profiles))

    async def _near(self, asked: Query, names: Sequence[str]) -> Numbers:
        """Cosine of the nearest passage of each collection; of one that has none of the nearest, at most theirs."""
        hits: Sequence[Hit] = ()
        if self.nearest is not None:
            with suppress(Unavailable):
                hits = await self.nearest.search(asked)
        best = {hit.id.collection: hit.score for hit in reversed(hits)}
        lowest = min(best.values(), default=0.0) if len(hits) < _NEAREST else hits[-1].score
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
        known = [held[one.number] for one in same if one.number in held]
        key = (scope.tenant == same[0].tenant, same[0].name, tuple((one.number, one.version) for one in known))
        if key not in self._profiles:
            self._profiles[key] = await asyncio.to_thread(profile_of, same, known)
            while len(self._profiles) > _MOST_PROFILES:
                self._profiles.popitem(last=False)
        return self._profiles[key]


def names_of(scope: Scope) -> list[str]:
    """The names of the collections that hold something."""
    return list(dict.fromkeys(one.name for one in scope.collections if one.chunks))


def profile_of(same: Sequence[Collection], held: Sequence[Held]) -> Profile:
    """The profile of collections of one name.

    Args:
        held: what their fields hold.
    """
    languages = Counter[str]()
    for collection in same:
        languages.update(collection.languages)
    language = next((name for name, _ in languages.most_common(1)), "en")
    documents = max(sum(one.documents for one in held), 1)
    shares: dict[str, float] = {}
    whole: set[str] = set()
    names = dict.fromkeys(name for one in held for name in one.values if name not in RESERVED)
    values = [one for known in held for one in known.values.values() if one.field.item == "string"]
    each = max(_MOST_VALUES // max(len(values), 1), 1)
    for one in values:
        own = Counter[str]()
        for value, count in list(one.values.items())[:each]:
            whole.update(name for name in map(fold, (value, *one.field.aliases.get(value, ()))) if len(name) > 2)
            for term in {term.text for term in analyse(value, language)}:
                own[term] += count
        for term, count in own.items():
            shares[term] = max(shares.get(term, 0.0), min(count / documents, 1.0))
    said = next((one.description for one in same if one.description), "") or ", ".join(names)
    return Profile(
        tuple(one.number for one in same),
        max(sum(one.chunks for one in same), 1),
        shares,
        frozenset(whole),
        _terms((same[0].name, *(word for one in held for word in one.records)), language),
        _terms(names, language),
        f"{same[0].name}. {said}",
    )


def _terms(names: Sequence[str] | Mapping[str, None], language: str) -> frozenset[str]:
    words = " ".join(word for name in names for word in lexicon.name_words(name))
    return frozenset(term.text for term in analyse(words, language))


def said_in(text: str, gloss: str = "") -> Said:
    """What a question says.

    Args:
        gloss: it in English, word by word, when it is Chinese.
    """
    words = fold(text).split()
    spans = {" ".join(words[i : i + size]) for size in range(1, _LONGEST_SPAN + 1) for i in range(len(words))}
    for run in words:
        if glosses.is_chinese(run):
            spans |= {run[i : i + size] for size in range(2, _LONGEST_RUN + 1) for i in range(len(run))}
    return Said(question_terms(text, detect(text), gloss), frozenset(spans))


def features(
    said: Said,
    profiles: Sequence[Profile],
    counts: Mapping[int, Mapping[str, int]],
    near: Numbers,
    likeness: Numbers,
) -> Numbers:
    """The evidence for each collection, in columns as of `EVIDENCE`; shape (collections, columns).

    Args:
        counts: in how many passages each term occurs, by the number of the collection.
    """
    rows = []
    for one in profiles:
        words = values = called = fields = 0.0
        for term, share in said.terms.items():
            holding = sum(counts.get(number, {}).get(term, 0) for number in one.numbers) / one.passages
            words += share * math.log(holding + _FEW)
            values += share * math.log((max(holding, one.values.get(term, 0.0)) + _FEW) / (holding + _FEW))
            called += share * (term in one.called)
            fields += share * (term in one.fields)
        named = said.spans & one.whole
        longest = sum(not any(name in other for other in named if name != other) for name in named)
        rows.append((words, values, called, fields, longest))
    return np.column_stack((np.array(rows), near, likeness))


def decided(scope: Scope, names: Sequence[str], evidence: Numbers) -> Choice:
    """The likeliest collections that are right with `_SURE` together, each with the evidence that says most for it.

    Args:
        names: those of the rows of the evidence.
    """
    weighed = evidence * np.array(WEIGHTS)
    logits = weighed.sum(axis=1)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    # What is said for a collection is said beside the others.
    reasons = (weighed - weighed.mean(axis=0)).argmax(axis=1)
    chosen: list[SourceChoice] = []
    reached = 0.0
    for place in np.argsort(-probabilities, kind="stable"):
        if reached >= _SURE:
            break
        reached += float(probabilities[place])
        confidence = round(float(probabilities[place]), 4)
        chosen.append(SourceChoice(name=names[place], confidence=confidence, reason=EVIDENCE[reasons[place]]))
    if len(chosen) == len(names):
        return Choice(scope)
    kept = {one.name for one in chosen}
    narrowed = tuple(one for one in scope.collections if one.name in kept)
    return Choice(replace(scope, collections=narrowed), tuple(chosen))
