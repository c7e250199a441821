"""Rank features: scores from a document's metadata and from user feedback, if the settings ask for them.

A feature adds to a hit's score: value * weight * score of the best hit. So a weight of 0.1 moves a hit by at most a
tenth of the best score, whatever the fusion method. The hit's `scores` hold each value under the feature's name.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agent.options.rank_features import RankFeature
from agent.retrieval.fusion import FusedHit
from retrievers.core.metadata import MetadataValues, Scalar, parse_date
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.text.folding import fold

# Number of top hits whose tags stand in for the question's, if the question names no tag.
_TELLING = 10
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class RankFeatureInputs:
    """The inputs of the features.

    Attributes:
        question: searched for the names of tags.
        now: time from which ages are counted.
        values: for each hit, in their order, the metadata of its document in the form used by filters.
        catalogue: ranges and values of the fields.
        feedback: feedback on each hit's document, -1 to 1; empty means 0 for all.
    """

    question: str
    now: datetime
    values: Sequence[MetadataValues]
    catalogue: FieldCatalogue
    feedback: Sequence[float] = ()


def add_rank_features(
    features: Sequence[RankFeature], hits: Sequence[FusedHit], known: RankFeatureInputs
) -> list[FusedHit]:
    """Return the hits with the features added to their scores, best first; ties keep their order.

    Args:
        hits: best first.
    """
    if not hits:
        return []
    unit = max(hits[0].score, 0.0) or 1.0
    columns = {feature: _values(feature, hits, known) for feature in features}
    moved = []
    for place, hit in enumerate(hits):
        own: dict[str, float] = {feature.kind: round(columns[feature][place], 6) for feature in features}
        bonus = math.fsum(feature.weight * own[feature.kind] for feature in features)
        moved.append(hit._replace(score=hit.score + unit * bonus, scores={**hit.scores, **own}))
    order = sorted(range(len(moved)), key=lambda place: (-moved[place].score, place))
    return [moved[place] for place in order]


def _values(feature: RankFeature, hits: Sequence[FusedHit], known: RankFeatureInputs) -> list[float]:
    if feature.kind == "feedback":
        return list(known.feedback) or [0.0] * len(hits)
    held = [_items(values.get(feature.field)) for values in known.values]
    field = known.catalogue.fields.get(feature.field)
    if feature.kind == "prior":
        return [_prior(items, field) for items in held]
    if feature.kind == "recency":
        return [_recency(items, known.now, feature.half_life_days) for items in held]
    return _tags([{str(item) for item in items} for items in held], hits, known.question, field)


def _items(value: Scalar | list[Scalar] | None) -> list[Scalar]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _prior(items: Sequence[Scalar], field: FieldValues | None) -> float:
    """Return where the largest number in `items` lies between the field's lowest (0) and highest value (1).

    0 if `items` has no number, or the field has no range.
    """
    numbers = [float(item) for item in items if isinstance(item, int | float) and not isinstance(item, bool)]
    if (
        not numbers
        or field is None
        or not isinstance(field.low, int | float)
        or not isinstance(field.high, int | float)
    ):
        return 0.0
    low, high = float(field.low), float(field.high)
    return min(max((max(numbers) - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def _recency(items: Sequence[Scalar], now: datetime, half_life_days: float) -> float:
    """Return 0.5 ** (age of the latest date in `items` / half-life): 1 for a future date, 0 without a date."""
    moments = []
    for item in items:
        try:
            moments.append(datetime.fromisoformat(parse_date(str(item))).replace(tzinfo=UTC))
        except ValueError:
            continue
    if not moments:
        return 0.0
    age_days = max((now - max(moments)).total_seconds() / _DAY_S, 0.0)
    return float(0.5 ** min(age_days / half_life_days, 1000.0))


def _tags(held: Sequence[set[str]], hits: Sequence[FusedHit], question: str, field: FieldValues | None) -> list[float]:
    """Return per hit the cosine, 0 to 1, between its tags and the tags in the question, both weighted by rarity.

    If the question contains no tag, the tags of the best hits are used instead, weighted by score.

    Args:
        held: tags of each hit's document.
    """
    documents = max(field.documents if field else 0, 1)
    counts: Mapping[str, int] = field.values if field else {}

    def rarity(tag: str) -> float:
        return math.log1p(documents / max(counts.get(tag, 1), 1))

    folded = f" {fold(question)} "
    every = {tag for tags in held for tag in tags}
    profile: dict[str, float] = defaultdict(float)
    for tag in every:
        name = fold(tag)
        if name and (f" {name} " in folded or (not name.isascii() and name in folded)):
            profile[tag] += 1.0
    if not profile:
        for tags, hit in list(zip(held, hits, strict=True))[:_TELLING]:
            for tag in tags:
                profile[tag] += max(hit.score, 0.0)
    wanted = {tag: share * rarity(tag) for tag, share in profile.items()}
    length = math.sqrt(math.fsum(share**2 for share in wanted.values()))
    if not length:
        return [0.0] * len(held)
    return [_cosine(tags, wanted, length, rarity) for tags in held]


def _cosine(tags: set[str], wanted: Mapping[str, float], length: float, rarity: Callable[[str], float]) -> float:
    own = {tag: rarity(tag) for tag in tags}
    norm = math.sqrt(math.fsum(share**2 for share in own.values()))
    return math.fsum(own[tag] * wanted.get(tag, 0.0) for tag in own) / (norm * length) if norm else 0.0
