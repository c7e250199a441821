"""The option RANK_FEATURES: signals other than the text that rank hits, with their weights."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

FeatureKind = Literal["prior", "recency", "tags", "feedback"]
KINDS: tuple[str, ...] = get_args(FeatureKind)
FORM = "prior:FIELD=WEIGHT, recency:FIELD/DAYS=WEIGHT, tags:FIELD=WEIGHT, feedback=WEIGHT"


@dataclass(frozen=True, slots=True)
class RankFeature:
    """One configured rank feature.

    Attributes:
        kind: what gives a hit its value. "prior": the number in the field, 0 for the lowest in the collections to 1 for
            the highest. "recency": the age of the date in the field, 1 for today to 0. "tags": how similar the
            document's tags are to the tags in the question, or if it has none, to those of the best hits, 0 to 1.
            "feedback": the users' feedback on the document, -1 to 1.
        field: the metadata field; "" for feedback.
        weight: > 0; a hit's score grows by its value times `weight` times the best hit's score.
        half_life_days: for recency: the age in days at which the value is 0.5. Else 0.
    """

    kind: FeatureKind
    field: str
    weight: float
    half_life_days: float = 0.0

    def __str__(self) -> str:
        days = f"/{self.half_life_days:g}" if self.kind == "recency" else ""
        return f"{self.kind}{':' if self.field else ''}{self.field}{days}={self.weight:g}"


_PATTERN = re.compile(r"(?P<kind>[a-z]+)(?::(?P<field>[^/=]+))?(?:/(?P<days>[\d.]+))?=(?P<weight>[\d.]+)")


def parse_rank_features(text: str) -> tuple[RankFeature, ...]:
    """Return the features of a setting, which has the form `FORM`; () for an empty setting.

    Raises:
        ValueError: malformed; the message says which part.
    """
    features = []
    for one in filter(None, map(str.strip, text.split(","))):
        found = _PATTERN.fullmatch(one)
        kind = found["kind"] if found else ""
        if not found or kind not in KINDS or bool(found["field"]) == (kind == "feedback"):
            raise ValueError(f'"{one}" is not a rank feature; write {FORM}')
        if bool(found["days"]) != (kind == "recency"):
            raise ValueError(
                f'"{one}": only recency has a half-life, and needs one, in days: recency:FIELD/DAYS=WEIGHT'
            )
        try:
            weight, days = float(found["weight"]), float(found["days"] or 0)
        except ValueError:
            raise ValueError(f'"{one}" contains a value that is not a number') from None
        if not 0 < weight <= 10 or (kind == "recency" and not 0 < days <= 36_500):
            raise ValueError(
                f'"{one}": a weight must be above 0 and at most 10, a half-life above 0 and at most 36,500 days'
            )
        features.append(RankFeature(kind, (found["field"] or "").strip(), weight, days))  # type: ignore[arg-type]
    if len({one.kind for one in features}) < len(features):
        raise ValueError("a rank feature occurs twice; remove one of them")
    return tuple(features)
