"""Query transformers: what a model makes of a question before it is searched.

`compress`, `rewrite` and `translate` put another question in its place, each on top of the one before;
`expand`, `decompose`, `stepback` and `hyde` add searches for the question that comes out, all at once.
One that fails leaves the question as it was and says so. Each has its prompt under `prompts/`.
"""

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from agent.llm import Model
from agent.transform.base import Asked, Transform, Transformed

Name = Literal["compress", "rewrite", "translate", "expand", "decompose", "stepback", "hyde"]
NAMES: tuple[Name, ...] = get_args(Name)
REPLACING: frozenset[Name] = frozenset({"compress", "rewrite", "translate"})


def load(name: Name) -> Transform:
    """The transformer of that name: the function `transform` of its module."""
    transform: Transform = importlib.import_module(f"agent.transform.{name}").transform
    return transform


async def apply(names: Sequence[Name], asked: Asked, model: Model, deadline: float) -> list[Transformed]:
    """What the transformers make of a question, in any order given.

    Args:
        deadline: moment of `time.monotonic()` shared by all of them.
    Returns:
        First the question to search for, then what was added to it, one entry per adding transformer.
        `degraded` says which failed; their texts are the question alone.
    """
    done: list[Transformed] = []
    for name in (name for name in NAMES if name in names and name in REPLACING):
        made = await load(name)(asked, model, deadline)
        done.append(made)
        asked = replace(asked, question=made.texts[0])
    reasons = [made.degraded for made in done if made.degraded]
    question = Transformed((asked.question,), "; ".join(reasons) or None)
    adding = [load(name) for name in NAMES if name in names and name not in REPLACING]
    return [question, *await asyncio.gather(*(transform(asked, model, deadline) for transform in adding))]
