"""Judge the filters that the service read from questions against their labels."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.service.service import Service
from evals.datasets import LabelledQuestion
from evals.filter_equality import FilterCorpus, corpus_of_values
from evals.reading import filter_verdict
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.filters import And, Filter
from retrievers.core.types import Scope
from retrievers.postgres.catalogue.catalogue import filterable_fields

MOST_PARTS = 1000
"""Maximum number of document ids in one statement."""

_DOCUMENTS = """
    SELECT id, fields, language FROM signalbox.document
    WHERE collection = ANY (%(among)s) AND enabled AND (expires_at IS NULL OR expires_at > now())
"""
_KNOWN = """
    SELECT DISTINCT id FROM signalbox.document WHERE collection = ANY (%(among)s) AND id = ANY (%(ids)s) AND enabled
"""
_SIMILAR = """
    SELECT id FROM signalbox.document WHERE collection = ANY (%(among)s) AND enabled ORDER BY id LIMIT 5000
"""


async def stored_corpus(service: Service, scope: Scope) -> FilterCorpus:
    """Return the fields and filterable values of the documents stored in a scope."""
    values = {"among": [one.number for one in scope.collections]}
    rows = await service.database.fetch(scope.viewer, _DOCUMENTS, values)
    return corpus_of_values(
        filterable_fields(scope), {id: {"language": language, **held} for id, held, language in rows}
    )


async def check_documents(service: Service, scope: Scope, questions: Iterable[LabelledQuestion]) -> None:
    """Check that the documents which the questions expect are stored.

    Raises:
        BadRequest: an expected document is not stored; the message names the question's line and similar ids.
    """
    among = [one.number for one in scope.collections]
    wanted = {id: question for question in questions for id in question.relevant}
    ids = list(wanted)
    known: set[str] = set()
    for start in range(0, len(ids), MOST_PARTS):
        values = {"among": among, "ids": ids[start : start + MOST_PARTS]}
        known |= {row[0] for row in await service.database.fetch(scope.viewer, _KNOWN, values)}
    unknown = next((id for id in ids if id not in known), None)
    if unknown is None:
        return
    some = [row[0] for row in await service.database.fetch(scope.viewer, _SIMILAR, {"among": among})]
    similar = difflib.get_close_matches(unknown, some, n=3, cutoff=0.5) or some[:3]
    question, name = wanted[unknown], scope.collections[0].name
    what = f'{place_of(question)}: collection "{name}" holds no document "{unknown[:80]}"'
    raise BadRequest(f"{what}; it holds for instance: {join_names(similar, 3)}", where="dataset", valid=similar)


def place_of(question: LabelledQuestion) -> str:
    """Return where a question is defined, for error messages."""
    return question.where or f"question {question.id}"


class FilterJudge:
    """Compares the filters that the service read from questions with the gold filters.

    Args:
        corpora: fields and documents' values, by collection.
        questions: the questions whose filter is labelled, by the collection they are put to.
    Raises:
        BadRequest: a gold filter does not fit its collection.
    """

    def __init__(
        self, corpora: Mapping[str, FilterCorpus], questions: Mapping[str, Sequence[LabelledQuestion]]
    ) -> None:
        self._gold: dict[str, tuple[FilterCorpus, list[Filter | None]]] = {}
        for name, some in questions.items():
            for question in some:
                right = (question.filter, *question.other_filters)
                try:
                    self._gold[question.id] = (corpora[name], [corpora[name].read(one) for one in right])
                except BadRequest as error:
                    raise BadRequest(
                        f"{place_of(question)}: the gold filter does not fit the corpus: {error}"
                    ) from error

    def scores(self, id: str, found: Mapping[str, Any] | None) -> dict[str, float]:
        """Return `filter_exact` and `filter_f1`, each for the closest gold filter; {} if the filter is not judged."""
        if id not in self._gold:
            return {}
        corpus, golds = self._gold[id]
        read = corpus.read(found)
        return {
            "filter_exact": max(corpus.exact(gold, read) for gold in golds),
            "filter_f1": max(corpus.f1(gold, read) for gold in golds),
        }

    def missed(self, id: str) -> dict[str, float]:
        """Return the scores of a question that was not answered: zeros; {} if its filter is not judged."""
        return {"filter_exact": 0.0, "filter_f1": 0.0} if id in self._gold else {}

    def verdict(self, id: str, found: Mapping[str, Any] | None) -> str | None:
        """Return the verdict of `filter_verdict`; None if the filter is not judged."""
        if id not in self._gold:
            return None
        corpus, golds = self._gold[id]
        return filter_verdict(golds, corpus.read(found), corpus)

    def is_asked_for(self, id: str, condition: Mapping[str, Any]) -> bool | None:
        """Return whether a gold filter equals or contains this condition; None if the filter is not judged."""
        if id not in self._gold:
            return None
        corpus, golds = self._gold[id]
        read = corpus.read(condition)
        parts = [set(corpus.parts(gold)) for gold in golds]
        # The two bounds of a period are one condition of a question but two of a filter.
        bounds = set(corpus.parts(read)[1:]) if isinstance(read, And) else None
        return any(corpus.normal(read) in known or (bounds is not None and bounds <= known) for known in parts)
