"""Read the inputs of the rank features and add the features to the scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.intent.reader import local
from agent.options import deadline_shares
from agent.options.rank_features import parse_rank_features
from agent.retrieval import fusion, rank_features
from agent.retrieval.fusion import FusedHit
from agent.retrieval.planning import RequestContext
from agent.settings import Settings
from agent.types import Intent
from retrievers.core.errors import BadDocument, Unavailable
from retrievers.core.metadata import Field, MetadataValues, flatten_metadata, normalise_metadata
from retrievers.core.timeouts import wait_within
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields


@dataclass(frozen=True, slots=True)
class RankFeatureStage:
    """Adds rank features. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue

    async def apply(
        self, context: RequestContext, intent: Intent, pool: Sequence[FusedHit]
    ) -> tuple[list[FusedHit], tuple[str, ...]]:
        """Return the hits sorted by scores with the rank features of the settings, and notes for `degraded`.

        If feedback cannot be read in time, it counts as 0, and the note is "feedback_unavailable". Otherwise no note.

        Args:
            pool: the top hits, with their chunks.
        """
        features, scope = parse_rank_features(self.settings.rank_features), context.scope
        fields = filterable_fields(scope)
        documents = [hit.id[:3] for hit in pool]
        said: Mapping[tuple[str, str, str], float] = {}
        degraded: tuple[str, ...] = ()
        if any(feature.kind == "feedback" for feature in features):
            reading = self.catalogue.feedback(scope, set(documents))
            try:
                left_s = context.deadline_at(deadline_shares.FEEDBACK_BY) - time.monotonic()
                said = await wait_within(reading, min(self.settings.source_timeout_s, left_s))
            except (Unavailable, OSError):
                degraded = ("feedback_unavailable",)
        known = rank_features.RankFeatureInputs(
            question=intent.question,
            now=local(context.request.now, self.settings.zone),
            values=[_values(hit, fields) for hit in pool],
            catalogue=await self.catalogue.fields(scope),
            feedback=[said.get(document, 0.0) for document in documents],
        )
        return fusion.reorder_within_parts(pool, rank_features.add_rank_features(features, pool, known)), degraded


def _values(hit: FusedHit, fields: Mapping[str, Field]) -> MetadataValues:
    """Return a hit's metadata as {field: value in the form used by filters}.

    {} if a value does not fit the type of its field, which can happen with hits of external sources (web, cloud).
    """
    try:
        flat = flatten_metadata(hit.chunk.metadata) if hit.chunk else {}
        return normalise_metadata({key: value for key, value in flat.items() if key in fields}, fields)
    except BadDocument:
        return {}
