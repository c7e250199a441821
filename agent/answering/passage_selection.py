"""Select the passages of a prompt: drop near-duplicates, join adjacent chunks, fit the token budget, render as text.

Texts and titles are cleaned by `retrievers.text.prompt_sanitising.sanitise_prompt_text`. Citations refer to the stored
texts.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import prompts
from agent.answering.context_expansion import SurroundingPassages, are_adjacent, neighbour_id
from agent.llm.token_estimates import estimate_tokens
from agent.types import Citation
from retrievers.core.file_positions import describe_positions, first_page
from retrievers.core.types import Chunk, ChunkId
from retrievers.text.prompt_sanitising import sanitise_prompt_text

_NEAR_DUPLICATE = 0.85
_SHINGLE_WORDS = 5
_MOST_METADATA = 10
_LONGEST_METADATA = 80
_SHORT_TITLE = 60
_LONGEST_HEAD = 300
_SOME_FENCE = prompts.fence()

_WORDS = re.compile(r"[\u3400-\u9fff]|[^\W_]+")


@dataclass(frozen=True, slots=True)
class PromptPassage:
    """One block of the prompt: a chunk, or several adjacent chunks of one document.

    Attributes:
        chunks: in document order.
        best: index of the chunk that ranks highest.
    """

    chunks: tuple[Chunk, ...]
    best: int = 0

    @property
    def text(self) -> str:
        """The document's text from the first chunk to the last."""
        return "".join(chunk.text + chunk.gap for chunk in self.chunks[:-1]) + self.chunks[-1].text


def drop_near_duplicates(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks without those whose id, text or nearly whole wording occurs in an earlier chunk."""
    kept: list[Chunk] = []
    seen: set[object] = set()
    wordings: list[frozenset[int]] = []
    for chunk in chunks:
        text = _wording(chunk)
        if chunk.id in seen or text in seen:
            continue
        seen.update((chunk.id, text))
        if not chunk.text:
            kept.append(chunk)  # a document without text; similar titles do not mean similar documents
            continue
        wording = _shingles(text)
        if any(_overlap(wording, known) >= _NEAR_DUPLICATE for known in wordings):
            continue
        wordings.append(wording)
        kept.append(chunk)
    return kept


def _wording(chunk: Chunk) -> str:
    """Return the text of a passage on one line; for a document without text, its title and metadata."""
    return _one_line(chunk.text) or "\n".join((chunk.title, *_metadata_lines(chunk.metadata)))


def join_adjacent(chunks: Sequence[Chunk]) -> list[PromptPassage]:
    """Join chunks with consecutive numbers in a document into passages, ordered by the rank of their best chunk."""
    by_place = {
        (chunk.id.tenant, chunk.id.collection, chunk.id.document_id, chunk.id.ordinal): chunk for chunk in chunks
    }
    passages = []
    taken: set[object] = set()
    for chunk in chunks:
        if chunk.id in taken:
            continue
        first = last = chunk.id.ordinal
        place = chunk.id[:3]
        while (*place, first - 1) in by_place and (*place, first - 1) not in taken:
            first -= 1
        while (*place, last + 1) in by_place and (*place, last + 1) not in taken:
            last += 1
        run = tuple(by_place[(*place, ordinal)] for ordinal in range(first, last + 1))
        taken.update(one.id for one in run)
        passages.append(PromptPassage(run, chunk.id.ordinal - first))
    return passages


def fit_to_budget(passages: Sequence[PromptPassage], budget_tokens: int) -> list[PromptPassage]:
    """Return the passages that fit the budget, some shortened. The first is always kept, cut if needed."""
    kept: list[PromptPassage] = []
    left = budget_tokens
    for passage in passages:
        fitting = _shrink(passage, left)
        if fitting is None and not kept:
            best = passage.chunks[passage.best]
            head = _cost(PromptPassage((replace(best, text=""),)))
            if head > left // 2:
                # The text matters more than its metadata.
                best = replace(best, metadata={}, url=None, title=best.title[:_SHORT_TITLE])
                head = _cost(PromptPassage((replace(best, text=""),)))
            fitting = PromptPassage((_cut_text(best, left - head),))
        # A shorter passage further down may still fit.
        if fitting is not None:
            kept.append(fitting)
            left -= _cost(fitting)
    return kept


def _shrink(passage: PromptPassage, tokens: int) -> PromptPassage | None:
    """Return the passage with as many neighbours of its best chunk as fit; None if that chunk alone does not fit."""
    if _cost(passage) <= tokens:
        return passage
    first, last = passage.best, passage.best + 1
    if _cost(PromptPassage(passage.chunks[first:last])) > tokens:
        return None
    grew = True
    while grew:
        grew = False
        for start, end in ((first, last + 1), (first - 1, last)):
            if start >= 0 and end <= len(passage.chunks) and _cost(PromptPassage(passage.chunks[start:end])) <= tokens:
                first, last, grew = start, end, True
                break
    return PromptPassage(passage.chunks[first:last], passage.best - first)


def add_surroundings(
    passages: Sequence[PromptPassage],
    found: Mapping[ChunkId, Chunk],
    surroundings: SurroundingPassages,
    budget_tokens: int,
) -> list[PromptPassage]:
    """Extend each passage by the text around it while the budget lasts, best passage first.

    Two passages that meet are merged at the place of the better one.

    Args:
        found: the ranked chunks by id; a passage whose chunk differs from these was cut, and is not extended.
        surroundings: for each ranked chunk, the chunks that may be added to its passage.
        budget_tokens: maximum tokens of all passages together, including the added text.
    """
    grown = dict(enumerate(passages))
    owners = {chunk.id: number for number, passage in grown.items() for chunk in passage.chunks}
    shown = {_wording(chunk) for passage in passages for chunk in passage.chunks}
    left = budget_tokens - sum(map(_cost, passages))
    for number, passage in enumerate(passages):
        if owners[passage.chunks[0].id] != number or any(chunk != found[chunk.id] for chunk in passage.chunks):
            continue  # merged into another passage, or cut to the budget
        place, allowed = number, _allowed(passage.chunks, surroundings)
        sides = deque((1, -1))
        while sides:
            side = sides.popleft()
            chunks = grown[place].chunks
            edge = chunks[-1] if side > 0 else chunks[0]
            id = neighbour_id(edge, side)
            other = owners.get(id)
            if other is not None:
                added: tuple[Chunk, ...] = grown[other].chunks
            elif id in allowed and _wording(allowed[id]) not in shown:
                added = (allowed[id],)
            else:
                continue
            # Merging two passages removes one head and adds only white space.
            text = "" if other is not None else added[0].text
            cost = _tokens(text + (edge if side > 0 else added[-1]).gap)
            if cost > left or not are_adjacent(edge, added[0] if side > 0 else added[-1]):
                continue
            left -= cost
            shown.update(map(_wording, added))
            if other is not None:
                del grown[max(place, other)]
                place = min(place, other)
                allowed |= _allowed(added, surroundings)
            grown[place] = PromptPassage((*chunks, *added) if side > 0 else (*added, *chunks))
            owners.update((chunk.id, place) for chunk in grown[place].chunks)
            sides.append(side)
    return [grown[number] for number in sorted(grown)]


def _allowed(chunks: Sequence[Chunk], surroundings: SurroundingPassages) -> dict[ChunkId, Chunk]:
    return {id: one for chunk in chunks for id, one in surroundings.get(chunk.id, {}).items()}


def _cost(passage: PromptPassage) -> int:
    return estimate_tokens(f"{_SOME_FENCE} {render_passage(99, passage)}") + 1


def _tokens(text: str) -> int:
    return estimate_tokens(sanitise_prompt_text(text))


def _cut_text(chunk: Chunk, tokens: int) -> Chunk:
    """Return the chunk with its text cut to at most `tokens`, at the end of a word if one is near."""
    text = chunk.text
    while _tokens(text) > tokens and len(text) > 20:
        text = text[: int(len(text) * 0.9)]
    if len(text) < len(chunk.text) and " " in text[-40:]:
        text = text[: text.rindex(" ")]
    end = chunk.start + len(text)
    places = chunk.places and chunk.places.covering(chunk.start, end)
    return Chunk(chunk.id, chunk.title, text, chunk.url, chunk.heading, chunk.start, end, chunk.metadata, places=places)


def render_passage(n: int, passage: PromptPassage) -> str:
    """Return a passage as the prompt shows it: a line "[n] title, place (URL)", lines of metadata, then its text."""
    first = passage.chunks[0]
    head = f"[{n}] {(_one_line(first.title) or _one_line(first.id.document_id))[:_LONGEST_HEAD]}"
    if place := describe_positions([one.places for one in passage.chunks]):
        head += f", {_one_line(place)}"
    if first.url and len(first.url) <= _LONGEST_HEAD:
        head += f" ({_one_line(first.url)})"
    lines = [head, *_metadata_lines(first.metadata), *([sanitise_prompt_text(passage.text)] if passage.text else [])]
    return "\n".join(lines)


def _metadata_lines(metadata: Mapping[str, object]) -> list[str]:
    shown = []
    for key, value in metadata.items():
        items = value if isinstance(value, list) else [value]
        text = ", ".join(
            " ".join(str(item).split()) for item in items if not isinstance(item, dict) and item not in (None, "")
        )
        # Measure the stored text: cleaning must not make an overlong value look short.
        if len(text) <= _LONGEST_METADATA and len(key) <= _LONGEST_METADATA and (text := _one_line(text)):
            shown.append(f"{_one_line(key)}: {text}")
    return shown[:_MOST_METADATA]


def _one_line(text: str) -> str:
    return " ".join(sanitise_prompt_text(text).split())


def passage_citation(n: int, passage: PromptPassage, found: Set[ChunkId]) -> Citation:
    """Return the citation of a passage; its chunk id is that of the first chunk that is a hit, that is, in `found`."""
    first, last = passage.chunks[0], passage.chunks[-1]
    places = [one.places for one in passage.chunks]
    return Citation(
        n=n,
        document_id=first.id.document_id,
        chunk_id=str(next(chunk.id for chunk in passage.chunks if chunk.id in found)),
        title=first.title,
        url=first.url,
        start=first.start,
        end=last.end,
        heading=first.heading,
        page=first_page(places),
        place=describe_positions(places),
    )


def _shingles(text: str) -> frozenset[int]:
    words = _WORDS.findall(text.lower())
    size = min(_SHINGLE_WORDS, max(len(words), 1))
    return frozenset(hash(tuple(words[n : n + size])) for n in range(len(words) - size + 1))


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    """Return the Jaccard similarity of two wordings; 0 if their sizes rule out a near-duplicate."""
    if not one or not other or min(len(one), len(other)) < _NEAR_DUPLICATE * max(len(one), len(other)):
        return 0.0
    return len(one & other) / len(one | other)
