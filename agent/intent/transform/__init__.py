"""Query transformers: let a model rewrite a question, or add queries to it, before the search.

`compress`, `rewrite` and `translate` replace the question, each the result of the one before. `expand`, `decompose`,
`stepback` and `hyde` then add queries for the resulting question, in parallel. A transformer that fails leaves the
question unchanged and is reported. The prompts are under `prompts/`.
"""

import asyncio
import importlib
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.intent.transform.base import Transformer, TransformInput, TransformResult
from agent.llm.model import Model
from agent.options.transforms import NAMES, TransformName

REPLACING: frozenset[TransformName] = frozenset({"compress", "rewrite", "translate"})

_log = logging.getLogger(__name__)
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


def load_transformer(name: TransformName) -> Transformer:
    """Return the transformer of that name: the function `transform` of its module."""
    transform: Transformer = importlib.import_module(f"agent.intent.transform.{name}").transform
    return transform


@dataclass(frozen=True, slots=True)
class TransformedQuestion:
    """The result of all transformers.

    Attributes:
        question: the question to search for; the original if no transformer replaced it.
        searches: additional queries.
        vector_only: those of `searches` that are for vectors only, with the name of their transformer.
        failed: transformers that failed.
    """

    question: str
    searches: tuple[str, ...] = ()
    vector_only: Mapping[str, TransformName] = field(default_factory=dict)
    failed: tuple[TransformName, ...] = ()


async def run_transformers(
    names: Collection[TransformName], transform_input: TransformInput, model: Model, deadline: float
) -> TransformedQuestion:
    """Run transformers on a question; the order of `names` does not matter.

    Args:
        deadline: time of `time.monotonic()`, shared by all transformers.
    """
    failed: list[TransformName] = []
    for name in (name for name in NAMES if name in names and name in REPLACING):
        made = await load_transformer(name)(transform_input, model, deadline)
        failed += [name] if made.failure else []
        transform_input = replace(transform_input, question=made.texts[0])
        _report(made)
    adding = [name for name in NAMES if name in names and name not in REPLACING]
    added = await asyncio.gather(*(load_transformer(name)(transform_input, model, deadline) for name in adding))
    searches: dict[str, None] = {}
    vector_only: dict[str, TransformName] = {}
    for name, made in zip(adding, added, strict=True):
        failed += [name] if made.failure else []
        new = [text for text in made.texts if text != transform_input.question and text not in searches]
        searches |= dict.fromkeys(new)
        vector_only |= dict.fromkeys(new if made.only_source == "vector" else (), name)
        _report(made)
    return TransformedQuestion(transform_input.question, tuple(searches), vector_only, tuple(failed))


def skipped_notes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the `Result.degraded` notes for transformers that were not run."""
    return tuple(f"{name}_skipped" for name in names)


def unavailable_notes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the `Result.degraded` notes for transformers that failed."""
    return tuple(f"{name}_unavailable" for name in names)


def _report(made: TransformResult) -> None:
    if made.failure:
        _log.warning("a query transformer returned nothing: %s", "".join(c for c in made.failure if c.isprintable()))
