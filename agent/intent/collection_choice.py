"""Choose the collections for a question that names none, by what each collection holds.

A multinomial logistic regression weighs evidence from words, values and meaning; `evals/train_scope.py` makes its
weights. A collection whose probability reaches `LEAST_ALONE` is searched alone. Otherwise the likeliest collections
with a total probability of `_LEAST_TOTAL` are searched: several if the evidence is close, all if there is none.
"""

import asyncio
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.intent.language import lexicon
from agent.intent.language.text import readable
from agent.options import deadline_shares
from agent.types import Request, SourceChoice
from retrievers.core.errors import Unavailable
from retrievers.core.metadata import RESERVED
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Collection, Hit, Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.catalogue.value_merging import PartFieldValues
from retrievers.text import chinese_dictionary
from retrievers.text.analysis import analyse
from retrievers.text.folding import fold
from retrievers.text.languages import detect_language
from retrievers.text.question_terms import question_term_weights

LEAST_ALONE = 0.75
"""Minimum probability of a collection that is searched alone."""
_LEAST_TOTAL = 0.98
"""Minimum total probability of several chosen collections. A wrong exclusion costs more than one more search."""
_NEAREST = 50
"""Number of nearest passages whose collections count as evidence."""
_FEW = 0.03
"""Share of passages, or of documents with a value, below which a word is no evidence."""
_MOST_VALUES = 2000
"""Maximum values of a collection, shared among its fields."""
_MOST_PROFILES = 256
_LONGEST_VALUE = 8
"""Maximum length of a whole value that is looked for in a question, in words or Chinese characters."""
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_TURNS = 2
"""Number of the asker's earlier turns that are read together with the question."""

Numbers = NDArray[np.float64]

RELAXED_REASON = "the question names no collection, and the collections chosen for it do not contain the answer"
"""The reason in `Result.relaxed`."""
EVIDENCE = (
    "its passages contain the question's words",
    "its fields contain the question's words",
    "the question names it",
    "the question names its fields or words of its description",
    "its passages are near",
    "its description is near in meaning",
    "the question states one of its values",
)
"""The meaning of each evidence column."""
WEIGHTS: Mapping[str, Sequence[float]] = {
    "vector": (0.23, 1.01, 2.54, 1.82, 14.29, 5.37, 1.92),
    "fulltext": (0.07, 1.09, 2.29, 1.8, 2.5, 7.26, 4.47),
}
"""Weights of the columns, by the source that found the nearest passages.

Full text is used if the embedder does not know the question's language, or if the collections differ in their embedder.
"""


@dataclass(frozen=True, slots=True)
class CollectionProfile:
    """The words and values that the collections of one name hold, for comparison with a question.

    Attributes:
        numbers: the numbers of the collections.
        passages: number of passages, at least 1.
        values: for each term, the share of documents that have a value with it.
        whole: values and their aliases, folded.
        document_nouns: terms of the collection's name and of the nouns for its documents, such as "permit".
        fields: terms of its field names and its description.
        card: a one-line description, which is embedded.
    """

    numbers: tuple[int, ...]
    passages: int
    values: Mapping[str, float]
    whole: frozenset[str]
    document_nouns: frozenset[str]
    fields: frozenset[str]
    card: str


class CollectionEvidence(NamedTuple):
    """Evidence that a question is about each of `names`: `columns` has a row for each, with the columns of `EVIDENCE`.

    Attributes:
        near: the source that found the nearest passages, "vector" or "fulltext".
    """

    names: Sequence[str]
    columns: Numbers
    near: str


@dataclass(frozen=True, slots=True)
class CollectionChoice:
    """The collections to search: `scope` is limited to them, `collections` gives the reasons, the likeliest first.

    `collections` is empty if nothing was chosen.
    """

    scope: Scope
    collections: tuple[SourceChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionChooser:
    """Chooses which collections of a scope to search for a request that names none.

    Args:
        sources: retrievers of documents, by name.
    """

    catalogue: Catalogue
    embedder: Embedder
    sources: Mapping[str, Retriever]
    _profiles: OrderedDict[tuple[Hashable, ...], CollectionProfile] = field(default_factory=OrderedDict)
    _cards: OrderedDict[str, Numbers] = field(default_factory=OrderedDict)

    async def choose(self, request: Request, scope: Scope, deadline: float) -> CollectionChoice:
        """Return the collections that a request is about.

        The whole scope is returned if the request names a collection or asks for complete results, if only one
        collection has passages, or if the evidence is not available in time.

        Args:
            deadline: end of the whole request, on the clock of `time.monotonic`.
        """
        several = len({one.name for one in scope.collections if one.chunks}) > 1
        if request.collection is not None or request.complete or not several:
            return CollectionChoice(scope)
        try:
            telling = self.evidence(request, scope)
            return choose_collections(
                scope, await wait_within(telling, deadline_shares.COLLECTION_CHOICE * (deadline - time.monotonic()))
            )
        except (TimeoutError, Unavailable, OSError):
            return CollectionChoice(scope)

    async def evidence(self, request: Request, scope: Scope) -> CollectionEvidence:
        """Return the evidence for each collection that has passages."""
        names = list(dict.fromkeys(one.name for one in scope.collections if one.chunks))
        turns = [turn.content for turn in request.history if turn.role == "user"][-_TURNS:]
        text = readable(" ".join((*turns, request.question)))
        translation = chinese_dictionary.translate_words(text) if chinese_dictionary.contains_chinese(text) else ""
        terms = question_term_weights(text, detect_language(text), translation)
        held = {one.number: one for one in await self.catalogue.part_values(scope)}
        profiles = []
        for name in names:
            profiles.append(await self._profile(scope, [one for one in scope.collections if one.name == name], held))
        counts = await self.catalogue.term_counts(scope, terms)
        known = Embedders.of(self.embedder).languages_in(scope)
        knows = not translation or known is None or "zh" in known
        asked = Query(text, detect_language(text), scope, limit=_NEAREST, translation="" if knows else translation)
        same = len({one.embedder for one in scope.collections if one.chunks}) == 1
        source = "vector" if knows and same else "fulltext"
        near, likeness = await self._nearest_scores(asked, names, source), await self._likeness(asked, profiles)
        question = readable(request.question)
        stated = stated_values(question, detect_language(question), profiles)
        columns = (word_evidence(terms, profiles, counts), near, likeness, stated)
        return CollectionEvidence(names, np.column_stack(columns), source)

    async def _nearest_scores(self, asked: Query, names: Sequence[str], source: str) -> Numbers:
        """Return the score of the best passage of each collection; for full text log(1 + score).

        A collection without a hit gets the score of the last hit if the search found as many hits as it may return,
        else 0. The logarithm is taken because BM25 has no upper bound, and words of the question's language score much
        higher than their translations in a collection of another language.
        """
        hits: Sequence[Hit] = ()
        if source in self.sources:
            with suppress(Unavailable):
                hits = await self.sources[source].search(asked)
        best = {hit.id.collection: hit.score for hit in reversed(hits)}
        lowest = hits[-1].score if len(hits) == _NEAREST else 0.0
        scores = np.array([best.get(name, lowest) for name in names])
        return np.log1p(scores) if source == "fulltext" else scores

    async def _likeness(self, asked: Query, profiles: Sequence[CollectionProfile]) -> Numbers:
        """Return the cosine between the question and each collection's card; zeros if the embedder is unavailable."""
        try:
            missing = [one.card for one in profiles if one.card not in self._cards]
            if missing:
                self._cards.update(zip(missing, await self.embedder.embed(missing), strict=True))
            question = await self.embedder.embed_query(asked.translation or asked.text)
            likeness = np.array([float(self._cards[one.card] @ question) for one in profiles])
        except Unavailable:
            return np.zeros(len(profiles))
        while len(self._cards) > _MOST_PROFILES:
            self._cards.popitem(last=False)
        return likeness

    async def _profile(
        self, scope: Scope, same: Sequence[Collection], held: Mapping[int, PartFieldValues]
    ) -> CollectionProfile:
        """Return the profile of the collections `same`, which have one name, cached until they change."""
        numbers = [number for one in same for number in (one.number, *(part for part, _ in one.parts))]
        known = [held[number] for number in numbers if number in held]
        versions = tuple((one.number, one.version) for one in known)
        key = (scope.tenant == same[0].tenant, scope.changed, same[0].name, versions)
        if key not in self._profiles:
            called = await self.catalogue.document_nouns(replace(scope, collections=tuple(same)))
            self._profiles[key] = await asyncio.to_thread(build_profile, same, known, called)
            while len(self._profiles) > _MOST_PROFILES:
                self._profiles.popitem(last=False)
        return self._profiles[key]


def build_profile(
    same: Sequence[Collection], held: Sequence[PartFieldValues], called: Sequence[str] = ()
) -> CollectionProfile:
    """Return the profile of collections of one name.

    Args:
        held: the values of the collections' fields.
        called: nouns for the collections' documents, found in ids and titles.
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
            names_of_it = (value, *one.field.aliases.get(value, ()))
            whole.update(map(fold, names_of_it))
            for term in {term.text for term in analyse(" ".join(names_of_it), language)}:
                own[term] += count
        for term, count in own.items():
            shares[term] = max(shares.get(term, 0.0), min(count / documents, 1.0))
    description = next((one.description for one in same if one.description), "")
    return CollectionProfile(
        tuple(one.number for one in same),
        max(sum(one.chunks for one in same), 1),
        shares,
        frozenset(whole),
        _terms((same[0].name, *called, *(word for one in held for word in one.records)), language),
        _terms((*names, description), language),
        f"{same[0].name}. {description or ', '.join(names)}",
    )


def _terms(names: Sequence[str], language: str) -> frozenset[str]:
    words = " ".join(word for name in names for word in lexicon.name_words(name))
    return frozenset(term.text for term in analyse(words, language))


def word_evidence(
    terms: Mapping[str, float], profiles: Sequence[CollectionProfile], counts: Mapping[int, Mapping[str, int]]
) -> Numbers:
    """Return the first four columns of `EVIDENCE`, which are about words, shape (collections, 4).

    Args:
        terms: the terms of the question with their weights.
        counts: number of passages with each term, by collection number.
    """
    rows = []
    for one in profiles:
        words = values = called = fields = 0.0
        for term, share in terms.items():
            holding = sum(counts.get(number, {}).get(term, 0) for number in one.numbers) / one.passages
            words += share * math.log(holding + _FEW)
            values += share * math.log((max(holding, one.values.get(term, 0.0)) + _FEW) / (holding + _FEW))
            called += share * (term in one.document_nouns)
            fields += share * (term in one.fields)
        rows.append((words, values, called, fields))
    return np.array(rows)


def stated_values(question: str, language: str, profiles: Sequence[CollectionProfile]) -> list[float]:
    """Return 1 for each collection with a value that the question contains as a whole, 0 for the others.

    Values of stop words alone do not count: "it" may be a language, but hardly in "how does it work?".
    """
    folded = fold(question)
    words = list(_WORD.finditer(folded))
    spans = {
        folded[first.start() : last.end()]
        for place, first in enumerate(words)
        for last in words[place : place + _LONGEST_VALUE]
    }
    held = {span for span in spans if len(span) > 1 and any(span in one.whole for one in profiles)}
    stated = {span for span in held if any(analyse(span, language))}
    return [float(not stated.isdisjoint(one.whole)) for one in profiles]


def choose_collections(scope: Scope, evidence: CollectionEvidence) -> CollectionChoice:
    """Return the collections to search: one if it is likely enough, else several, each with its strongest evidence."""
    weighed = evidence.columns * np.array(WEIGHTS[evidence.near])
    probabilities = collection_probabilities(evidence, WEIGHTS[evidence.near])
    # The reason shown is the evidence by which a collection exceeds the others most.
    reasons = (weighed - weighed.mean(axis=0)).argmax(axis=1)
    chosen = tuple(
        SourceChoice(
            name=evidence.names[place],
            confidence=round(float(probabilities[place]), 4),
            reason=EVIDENCE[reasons[place]],
        )
        for place in chosen_indices(probabilities)
    )
    if len(chosen) == len(evidence.names):
        return CollectionChoice(scope)
    return CollectionChoice(scope.restricted_to(one.name for one in chosen), chosen)


def collection_probabilities(evidence: CollectionEvidence, weights: Sequence[float]) -> Numbers:
    """Return for each collection the probability that the question is about it; they add up to 1."""
    logits = (evidence.columns * np.array(weights)).sum(axis=1)
    probabilities = np.exp(logits - logits.max())
    return np.asarray(probabilities / probabilities.sum())


def chosen_indices(probabilities: Numbers) -> list[int]:
    """Return the indices of the collections to search, the likeliest first."""
    order: list[int] = np.argsort(-probabilities, kind="stable").tolist()
    if probabilities[order[0]] >= LEAST_ALONE:
        return order[:1]
    reached = np.cumsum(probabilities[order])
    return order[: int(np.searchsorted(reached, _LEAST_TOTAL)) + 1]
