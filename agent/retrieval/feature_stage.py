"""Read the inputs of the rank features and add the features to the scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.intent.reader import local
from agent.options.rank_features import parse as parse_rank_features
from agent.retrieval import fusion, rank_features
from agent.retrieval.fusion import Fused
from agent.retrieval.planning import Asked
from agent.settings import Settings
from agent.types import Intent
from retrievers.core.errors import BadDocument, Unavailable
from retrievers.core.fields import Field, Values, flatten, normalise
from retrievers.core.tasks import within
from retrievers.postgres.catalogue import Catalogue, filterable

_FEATURED_BY = 0.95
"""Share of the request's time by which feedback must be known, so that the page can still be loaded."""


@dataclass(frozen=True, slots=True)
class FeatureStage:
    """Adds rank features. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue

    async def apply(self, asked: Asked, intent: Intent, pool: Sequence[Fused]) -> tuple[list[Fused], tuple[str, ...]]:
        """Return the hits sorted by scores with the rank features of the settings, and notes for `degraded`.

        If feedback cannot be read in time, it counts as 0, and the note is "feedback_unavailable". Otherwise no note.

        Args:
            pool: the top hits, with their chunks.
        """
        features, scope = parse_rank_features(self.settings.rank_features), asked.scope
        fields = filterable(scope)
        documents = [hit.id[:3] for hit in pool]
        said: Mapping[tuple[str, str, str], float] = {}
        degraded: tuple[str, ...] = ()
        if any(feature.kind == "feedback" for feature in features):
            reading = self.catalogue.feedback(scope, set(documents))
            try:
                said = await within(
                    reading, min(self.settings.source_timeout_s, asked.at(_FEATURED_BY) - time.monotonic())
                )
            except (Unavailable, OSError):
                degraded = ("feedback_unavailable",)
        known = rank_features.FeatureInputs(
            question=intent.question,
            now=local(asked.request.now, self.settings.zone),
            values=[_values(hit, fields) for hit in pool],
            catalogue=await self.catalogue.fields(scope),
            feedback=[said.get(document, 0.0) for document in documents],
        )
        return fusion.in_turns(pool, rank_features.apply(features, pool, known)), degraded


def _values(hit: Fused, fields: Mapping[str, Field]) -> Values:
    """Return a hit's metadata as {field: value in the form used by filters}.

    {} if a value does not fit the type of its field, which can happen with hits of external sources (web, cloud).
    """
    try:
        flat = flatten(hit.chunk.metadata) if hit.chunk else {}
        return normalise({key: value for key, value in flat.items() if key in fields}, fields)
    except BadDocument:
        return {}
