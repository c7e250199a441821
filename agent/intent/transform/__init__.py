"""Query transformers: what a model makes of a question before it is searched.

`compress`, `rewrite` and `translate` put another question in its place, each on top of the one before;
`expand`, `decompose`, `stepback` and `hyde` add searches for the question that comes out, all at once.
One that fails leaves the question as it was and says so. Each has its prompt under `prompts/`.
"""

import asyncio
import importlib
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.intent.transform.base import Transform, Transformed, TransformInput
from agent.llm.model import Model
from agent.options.transforms import NAMES, Name

REPLACING: frozenset[Name] = frozenset({"compress", "rewrite", "translate"})

_log = logging.getLogger(__name__)
# Without a handler of the program's own, the lines would go to stderr as they are.
_log.addHandler(logging.NullHandler())


def load(name: Name) -> Transform:
    """The transformer of that name: the function `transform` of its module."""
    transform: Transform = importlib.import_module(f"agent.intent.transform.{name}").transform
    return transform


@dataclass(frozen=True, slots=True)
class Applied:
    """What the transformers made of a question.

    Attributes:
        question: to be searched for in its place; the question itself where none replaced it.
        searches: to be searched for beside it.
        vector_only: of `searches`, those for vectors alone, with the transformer of each.
        failed: the transformers that gave nothing.
    """

    question: str
    searches: tuple[str, ...] = ()
    vector_only: Mapping[str, Name] = field(default_factory=dict)
    failed: tuple[Name, ...] = ()


async def apply(names: Collection[Name], asked: TransformInput, model: Model, deadline: float) -> Applied:
    """What the transformers make of a question, in any order given.

    Args:
        deadline: moment of `time.monotonic()` shared by all of them.
    """
    failed: list[Name] = []
    for name in (name for name in NAMES if name in names and name in REPLACING):
        made = await load(name)(asked, model, deadline)
        failed += [name] if made.degraded else []
        asked = replace(asked, question=made.texts[0])
        _report(made)
    adding = [name for name in NAMES if name in names and name not in REPLACING]
    added = await asyncio.gather(*(load(name)(asked, model, deadline) for name in adding))
    searches: dict[str, None] = {}
    vector_only: dict[str, Name] = {}
    for name, made in zip(adding, added, strict=True):
        failed += [name] if made.degraded else []
        new = [text for text in made.texts if text != asked.question and text not in searches]
        searches |= dict.fromkeys(new)
        vector_only |= dict.fromkeys(new if made.only == "vector" else (), name)
        _report(made)
    return Applied(asked.question, tuple(searches), vector_only, tuple(failed))


def skipped(names: Iterable[str]) -> tuple[str, ...]:
    """What `Result.degraded` says of transformers that were not asked."""
    return tuple(f"{name}_skipped" for name in names)


def unavailable(names: Iterable[str]) -> tuple[str, ...]:
    """What `Result.degraded` says of transformers that gave nothing."""
    return tuple(f"{name}_unavailable" for name in names)


def _report(made: Transformed) -> None:
    if made.degraded:
        _log.warning("a query transformer gave nothing: %s", "".join(c for c in made.degraded if c.isprintable()))
