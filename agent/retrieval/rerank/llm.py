"""Listwise reranking: show the service's model windows of passages and let it order them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, field_validator

import prompts
from agent.llm.call_log import CallLog
from agent.llm.model import Model, ModelFailed
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import passage_text

STAGE = "rerank"
WINDOW, STEP = 32, 16
"""Passages per window, and number of places by which each window starts before the last. Windows overlap, so that a
good passage can rise from one to the next.
"""
_LONGEST_PASSAGE = 600
_LONGEST_QUESTION = 2_000


class Order(BaseModel):
    """Numbers of the passages, from 1, best first."""

    order: list[int]

    @field_validator("order", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        """Read numbers from strings too, and drop other words, which models sometimes add."""
        if not isinstance(value, list):
            return value
        numbers = [number for one in value if (number := _number(one)) is not None]
        if value and not numbers:
            raise ValueError("it contains no number")
        return numbers


@dataclass(frozen=True, slots=True)
class ListwiseReranker:
    """Orders passages by the model's reply; passages that the reply leaves out follow in their old order.

    A score is only the place, from 1 down to 1/n, so scores of different questions cannot be compared.

    Source:
        Sun et al., "Is ChatGPT Good at Search?", EMNLP 2023, doi:10.18653/v1/2023.emnlp-main.923 (RankGPT).
    """

    model: Model
    name: str = "llm"
    is_remote: bool = True
    is_comparable: bool = False
    templates: prompts.TemplateLibrary = field(default_factory=prompts.packaged_templates)

    def for_request(self, calls: CallLog, templates: prompts.TemplateLibrary) -> "ListwiseReranker":
        """Return a copy for one request: its model calls go to `calls`, its prompts use the tenant's templates."""
        return replace(self, model=calls.logged_model(self.model), templates=templates)

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return scores from 1 for the first passage down to 1/n for the last, see `Reranker.rerank`."""
        places = list(range(len(pool)))
        # From the last window upwards, so that a good passage is carried to the top.
        for start in _windows(len(pool)):
            shown = places[start : start + WINDOW]
            order = await self._order(question, [pool[place] for place in shown], deadline)
            places[start : start + WINDOW] = [shown[number] for number in order]
        scores = [0.0] * len(pool)
        for rank, place in enumerate(places):
            scores[place] = (len(pool) - rank) / len(pool)
        return scores

    async def aclose(self) -> None:
        """Do nothing: the service closes its model."""

    async def _order(self, question: str, window: Sequence[FusedHit], deadline: float) -> list[int]:
        """Return all positions of the window, from 0, best passage first."""
        texts = [f"[{number}] {_shortened(hit)}" for number, hit in enumerate(window, 1)]
        passages, asked = "\n".join(texts), question[:_LONGEST_QUESTION]
        values = {"question": asked, "passages": passages, "fence": prompts.fence(asked, passages)}
        reply = await self.model.complete(
            self.templates.load(STAGE).messages(values),
            stage=STAGE,
            deadline=deadline,
            key={"question": question, "passages": [str(hit.id) for hit in window]},
            schema=Order,
        )
        named = dict.fromkeys(number - 1 for number in reply.parsed.order if 1 <= number <= len(window))
        if reply.parsed.order and not named:
            raise ModelFailed("its reply names none of the passages")
        return list(named | dict.fromkeys(range(len(window))))


def _windows(count: int) -> list[int]:
    """Return the start of each window, last window first."""
    return [*range(max(count - WINDOW, 0), 0, -STEP), 0]


def _shortened(hit: FusedHit) -> str:
    return " ".join(passage_text(hit).split())[:_LONGEST_PASSAGE]


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        digits = value.strip().strip("[]")
        return int(digits) if digits.isdecimal() and len(digits) < 6 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
