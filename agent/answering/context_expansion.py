"""Context expansion: load the passages around the ranked passages, from the same documents."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from agent.llm.token_estimates import estimate_tokens
from agent.types import Context
from retrievers.core.types import Chunk, ChunkId

SurroundingPassages = Mapping[ChunkId, Mapping[ChunkId, Chunk]]
"""For each ranked passage, the surrounding passages that may be shown with it, by id."""

LoadChunks = Callable[[Iterable[ChunkId]], Awaitable[Mapping[ChunkId, Chunk]]]
"""Loads chunks by id; ids that do not exist or may not be read are left out."""

WINDOW_PASSAGES = 1
"""Number of passages on each side in context "window"."""
_AT_ONCE = 8
_MOST_LOADED = 2000


async def load_surroundings(
    chunks: Sequence[Chunk], context: Context, load: LoadChunks, *, budget_tokens: int
) -> SurroundingPassages:
    """Return the passages around each ranked passage, without gaps: {id of a ranked passage: {id: passage around it}}.

    Args:
        chunks: the ranked passages, best first.
        context: "passage" for none, "window" for `WINDOW_PASSAGES` on each side, else those of the same section or of
            its subsections.
        budget_tokens: reading around a passage stops once its surroundings exceed this many tokens.
    """
    around: dict[ChunkId, dict[ChunkId, Chunk]] = {chunk.id: {} for chunk in chunks}
    if context == "passage":
        return around
    at_once = WINDOW_PASSAGES if context == "window" else _AT_ONCE
    found = {chunk.id: chunk for chunk in chunks}
    known: dict[ChunkId, Chunk] = dict(found)
    # The outermost passage on each side of a ranked passage, while there may be more beyond it.
    ends = {(id, step): chunk for id, chunk in found.items() for step in (-1, 1)}
    while ends and len(known) < _MOST_LOADED:
        wanted = {neighbour_id(end, step, n) for (_, step), end in ends.items() for n in range(1, at_once + 1)}
        known.update(await load(sorted(id for id in wanted - known.keys() if id.ordinal >= 0)))
        for (id, step), end in list(ends.items()):
            for _ in range(at_once):
                next_one = known.get(neighbour_id(end, step))
                if next_one is None or not are_adjacent(end, next_one) or not _belongs(next_one, found[id], context):
                    del ends[id, step]
                    break
                around[id][next_one.id] = end = next_one
            else:
                ends[id, step] = end
            if sum(estimate_tokens(one.text) for one in around[id].values()) > budget_tokens or context == "window":
                ends.pop((id, step), None)
    return around


def neighbour_id(chunk: Chunk, step: int, times: int = 1) -> ChunkId:
    """Return the id of the passage `times` places after `chunk` in its document; before it if `step` is -1."""
    return chunk.id._replace(ordinal=chunk.id.ordinal + step * times)


def are_adjacent(one: Chunk, other: Chunk) -> bool:
    """Return whether only white space lies between two passages, in any order.

    Also False if the document was replaced after one passage was loaded, so that their offsets do not fit together.
    """
    first, second = sorted((one, other), key=lambda chunk: chunk.id)
    return second.id == neighbour_id(first, 1) and first.end + len(first.gap) == second.start


def _belongs(chunk: Chunk, found: Chunk, context: Context) -> bool:
    """Return whether a passage is in the section of the ranked passage `found` or in a subsection of it.

    Always True for the context "window", which ignores sections.
    """
    if context == "window" or chunk.heading == found.heading:
        return True
    return bool(found.heading) and chunk.heading.startswith(f"{found.heading} > ")
