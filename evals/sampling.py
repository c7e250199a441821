"""Draw documents of a stored collection at random, the same ones for the same seed."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.service.service import Service
from retrievers.core.metadata import MetadataValues
from retrievers.core.types import Scope, Viewer

_BATCH = 100

_DRAW = """
    SELECT md5(%(seed)s || d.id), d.id, d.title, d.body, d.fields, d.language FROM signalbox.document d
    WHERE d.collection = ANY (%(among)s) AND d.enabled AND d.chunks > 0
      AND (d.expires_at IS NULL OR d.expires_at > now()) AND (md5(%(seed)s || d.id), d.id) > (%(drawn)s, %(id)s)
    ORDER BY md5(%(seed)s || d.id), d.id LIMIT %(most)s
"""
_TITLES = """
    SELECT lower(title), count(*) FROM signalbox.document
    WHERE collection = ANY (%(among)s) AND enabled AND lower(title) = ANY (%(titles)s) GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """Which documents to draw, and how many questions to make of them.

    Attributes:
        viewer: only documents that the viewer may read are drawn.
        count: maximum number of questions.
        seed: the same seed over the same documents draws them in the same order.
    """

    viewer: Viewer
    count: int
    seed: int = 1


@dataclass(frozen=True, slots=True)
class DrawnDocument:
    """A document to make questions of.

    Attributes:
        values: its filterable values, including those of the reserved fields.
        is_alone: whether it has a title that no other document of the scope has, whatever the case.
    """

    id: str
    title: str
    text: str
    values: MetadataValues
    language: str
    is_alone: bool


async def draw_documents(service: Service, scope: Scope, seed: int) -> AsyncIterator[DrawnDocument]:
    """Yield all documents of a scope in an order that depends on the seed and their ids alone.

    Raises:
        Unavailable: the database cannot be reached.
    """
    among = [one.number for one in scope.collections]
    values: dict[str, Any] = {"among": among, "seed": f"{seed}\n", "drawn": "", "id": "", "most": _BATCH}
    while rows := await service.database.fetch(scope.viewer, _DRAW, values):
        alike = await _titles(service, scope, among, [row[2] for row in rows])
        for _, id, title, text, held, language in rows:
            alone = bool(title.strip()) and alike.get(title.lower(), 1) == 1
            yield DrawnDocument(id, title, text, {"language": language, **held}, language, alone)
        values |= {"drawn": rows[-1][0], "id": rows[-1][1]}


async def _titles(service: Service, scope: Scope, among: Sequence[int], titles: Sequence[str]) -> Mapping[str, int]:
    wanted = {"among": list(among), "titles": [one.lower() for one in titles]}
    return dict(tuple(row) for row in await service.database.fetch(scope.viewer, _TITLES, wanted))
