"""Measure whether the service chooses the right one of several collections for a question that names none."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.intent.collection_choice import RELAXED_REASON
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from evals import metrics
from evals.corpus import TENANT, Note, store_corpus
from evals.datasets import CORPUS, EVERY_SPLIT, QRELS, QUERIES, Dataset, lines, load
from retrievers.core.errors import BadRequest
from retrievers.core.types import Collection, Scope, Viewer
from retrievers.postgres.catalogue.catalogue import Catalogue

Json = dict[str, Any]

_ELSEWHERE = frozenset(["none", "web"])
_TOP_K = 10


@dataclass(frozen=True, slots=True)
class ScopeQuestion:
    """A question and the collection that it is about.

    Attributes:
        kind: the class of the question; "" if the dataset has none.
        relevant: grade by document id; empty if documents are not judged.
    """

    id: str
    text: str
    collection: str
    kind: str = ""
    history: tuple[Mapping[str, str], ...] = ()
    now: str | None = None
    relevant: Mapping[str, int] = field(default_factory=dict)

    def request(self) -> Json:
        """Return the keys of `agent.types.Request`, without the collection."""
        said = (*self.history, {"role": "user", "content": self.text})
        return {"messages": said, "now": self.now, "top_k": _TOP_K}


def questions_of(folder: Path) -> Iterator[ScopeQuestion]:
    """Yield the questions of a folder that its own documents can answer."""
    if (folder / QRELS).is_dir():
        for one in load(folder).questions:
            yield ScopeQuestion(one.id, one.text, folder.name, relevant=one.relevant)
        return
    for _, line in lines(folder / QUERIES):
        sources = [name for one in line.get("sources") or () for name in ([one] if isinstance(one, str) else one)]
        if line.get("collection", folder.name) == folder.name and not _ELSEWHERE & set(sources):
            relevant = line.get("relevant") or {}
            history = tuple(line.get("history") or ())
            kind = line.get("class") or ""
            yield ScopeQuestion(line["id"], line["text"], folder.name, kind, history, line.get("now"), relevant)


def every_nth(questions: Sequence[ScopeQuestion], count: int) -> list[ScopeQuestion]:
    """Return `count` of the questions, at equal distances in their order; all if there are fewer."""
    count = min(count, len(questions))
    return [questions[place * len(questions) // count] for place in range(count)]


class SubsetCatalogue(Catalogue):
    """The catalogue of a service, restricted to some collections."""

    def __init__(self, service: Service, names: Sequence[str]) -> None:
        super().__init__(service.database)
        self._names = frozenset(names)

    async def scope(
        self, who: str | Viewer, collection: str | None, *, fresh: bool = False, changed: int | None = None
    ) -> Scope:
        """See `Catalogue.scope`."""
        return (await super().scope(who, collection, fresh=fresh, changed=changed)).restricted_to(self._names)


@dataclass(frozen=True, slots=True)
class CollectionGroups:
    """Random groups of collections among which questions are asked.

    Args:
        number: number of groups; 0 asks once among all collections.
        size: number of collections in a group.
    """

    number: int = 0
    size: int = 6
    seed: int = 1

    def of(self, folders: Sequence[Path]) -> list[Sequence[Path]]:
        """Return the folders of each group; one group of all folders if `number` is 0."""
        chosen = random.Random(self.seed)
        return [chosen.sample(folders, min(self.size, len(folders))) for _ in range(self.number)] or [folders]


ALL_AT_ONCE = CollectionGroups()


async def measure(
    folders: Sequence[Path], count: int, settings: Settings, note: Note, groups: CollectionGroups = ALL_AT_ONCE
) -> Json:
    """Ask questions of every folder with and without the collection's name, among the folders' collections.

    Args:
        count: number of questions of a group.
    Returns:
        `figures`: for `all` questions and by folder: the number of `questions`; the shares of questions for which the
            right collection is `among` those chosen, is the only one (`alone`), or is not the single one that was
            chosen (`wrong`), and for which the choice was dropped and all collections searched (`let go`); the mean
            number of collections (`searched`); nDCG@10 of the judged questions asked without the collection's name
            (`found`) and with it (`given`); and the share of the documents found with the name that were also found
            without it (`same`). `classes`: the same by class of question. `questions`: each with the chosen
            collections.
    Raises:
        BadRequest: a folder is no dataset.
    """
    metrics.require_ir_measures()
    rows: list[Json] = []
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        for folder in folders:
            await store(service, folder, note)
        asked = {folder: list(questions_of(folder)) for folder in folders}
        for folder, questions in asked.items():
            if not questions:
                raise BadRequest(f"{folder}: the folder has no questions about its documents", where="dataset")
        for group in groups.of(folders):
            # The tenant may have collections of other groups and measurements.
            only = SubsetCatalogue(service, [folder.name for folder in group])
            within = replace(service, pipeline=replace(service.pipeline, catalogue=only))
            for folder in group:
                for one in every_nth(asked[folder], max(count // len(group), 1)):
                    rows.append(await _row(within, one))
            note(f"asked among {', '.join(folder.name for folder in group)}")
    figures = {"all": _figures(rows)} | _by(rows, "collection")
    return {"figures": figures, "classes": _by(rows, "class"), "questions": rows}


def _by(rows: Sequence[Json], key: str) -> Json:
    """Return the figures of the rows grouped by their value of a key, such as "class"; empty values are left out."""
    values = dict.fromkeys(row[key] for row in rows if row[key])
    return {value: _figures([row for row in rows if row[key] == value]) for value in values}


async def store(service: Service, folder: Path, note: Note) -> Collection:
    """Store the folder's documents in a collection with the folder's name; return the collection."""
    files = load(folder).corpus if (folder / QRELS).is_dir() else (folder / CORPUS,)
    return await store_corpus(service, Dataset(folder.name, folder, "routed", EVERY_SPLIT, files, ()), note)


async def _row(service: Service, one: ScopeQuestion) -> Json:
    found = await service.retrieve(tenant=TENANT, **one.request())
    given = await service.retrieve(tenant=TENANT, collection=one.collection, **one.request())
    ranked = [metrics.documents_of(hit.document_id for hit in result.hits) for result in (found, given)]
    row: Json = {
        "id": one.id,
        "text": one.text,
        "collection": one.collection,
        "class": one.kind,
        "collections": list(found.intent.collections),
        "scope": [choice.model_dump() for choice in found.intent.scope],
        "let_go": any(relaxed.reason == RELAXED_REASON for relaxed in found.relaxed),
        "same": len({*ranked[0]} & {*ranked[1]}) / len(ranked[1]) if ranked[1] else None,
        "took_ms": found.took_ms,
    }
    for name, documents in zip(("found", "given"), ranked, strict=True):
        scores = metrics.ranking_scores({one.id: documents}, {one.id: one.relevant})
        row[name] = scores[one.id]["nDCG@10"] if one.id in scores else None
    return row


def _figures(rows: Sequence[Json]) -> Json:
    chosen = [(row["collection"], row["collections"]) for row in rows]

    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(sum(known) / len(known), 4) if known else None

    return {
        "questions": len(rows),
        "among": mean(right in names for right, names in chosen),
        "alone": mean(names == [right] for right, names in chosen),
        "wrong": mean(len(names) == 1 and names != [right] for right, names in chosen),
        "let go": mean(row["let_go"] for row in rows),
        "searched": mean(len(names) for _, names in chosen),
        "found": mean(row["found"] for row in rows),
        "given": mean(row["given"] for row in rows),
        "same": mean(row["same"] for row in rows),
    }
