"""What stands around the passages found: exact spans, within the budget, in rank order, nothing twice."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent import Service, open_service
from agent.answering.context_expansion import load_surroundings
from agent.answering.prompt_builder import BuiltPrompt, build_prompt
from agent.llm.token_estimates import estimate_tokens
from agent.settings import Settings
from agent.types import Citation, Context, Prompt
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.types import Chunk, ChunkId
from retrievers.ingest.documents import Document
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.text.chunking import split_passages

PLENTY = 100_000


class Documents:
    """Texts cut into passages at blank lines; a passage's heading is given as "HEADING: text"."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.chunks: dict[ChunkId, Chunk] = {}
        self.asked: list[ChunkId] = []
        for document, text in texts.items():
            parts = list(re.finditer(r"\S.*?(?=\s*\n\n|\s*\Z)", text, re.DOTALL))
            following = [part.start() for part in parts[1:]] + [len(text)]
            for n, (part, after) in enumerate(zip(parts, following, strict=True)):
                heading = part[0].rpartition(": ")[0]
                id = ChunkId("t", "c", document, n)
                gap = text[part.end() : after]
                self.chunks[id] = Chunk(id, document.upper(), part[0], None, heading, part.start(), part.end(), gap=gap)

    def find(self, *places: tuple[str, int]) -> list[Chunk]:
        return [self.chunks[ChunkId("t", "c", *place)] for place in places]

    async def load(self, ids: Iterable[ChunkId]) -> Mapping[ChunkId, Chunk]:
        asked = list(ids)
        self.asked += asked
        return {id: self.chunks[id] for id in asked if id in self.chunks}

    async def prompt(
        self, *places: tuple[str, int], context: Context = "window", budget_tokens: int = PLENTY
    ) -> BuiltPrompt:
        found = self.find(*places)
        surroundings = await load_surroundings(found, context, self.load, budget_tokens=budget_tokens)
        return build_prompt("What?", found, budget_tokens=budget_tokens, surroundings=surroundings)

    def cited(self, citations: Sequence[Citation]) -> list[str]:
        return [self.texts[one.document_id][one.start : one.end] for one in citations]


TEN = Documents(a="\n\n".join(f"a{n}" for n in range(10)), b="b0\n\n\nb1 \n\nb2")


async def test_passages_alone_are_the_default():
    made = await TEN.prompt(("a", 4), context="passage")
    assert TEN.cited(made.citations) == ["a4"]
    assert TEN.asked == []


async def test_a_window_is_the_passages_on_both_sides():
    made = await TEN.prompt(("a", 4), ("b", 0))
    assert TEN.cited(made.citations) == ["a3\n\na4\n\na5", "b0\n\n\nb1"]
    for text in TEN.cited(made.citations):
        assert text in made.prompt
    # What is cited is named by the passage that was found.
    assert [one.chunk_id for one in made.citations] == ["c/a#4", "c/b#0"]


@pytest.mark.parametrize(
    ("places", "cited"),
    [
        ([("a", 2), ("a", 4)], ["a1\n\na2\n\na3\n\na4\n\na5"]),  # they share a3
        ([("a", 2), ("b", 1), ("a", 5)], ["a1\n\na2\n\na3\n\na4\n\na5\n\na6", "b0\n\n\nb1 \n\nb2"]),  # they touch
        ([("b", 1), ("a", 6), ("a", 2)], ["b0\n\n\nb1 \n\nb2", "a5\n\na6\n\na7", "a1\n\na2\n\na3"]),  # a4 is in none
        ([("a", 5), ("b", 0), ("a", 2)], ["a1\n\na2\n\na3\n\na4\n\na5\n\na6", "b0\n\n\nb1"]),
    ],
)
async def test_windows_that_overlap_or_touch_are_one_at_the_better_place(
    places: list[tuple[str, int]], cited: list[str]
):
    made = await TEN.prompt(*places)
    assert TEN.cited(made.citations) == cited
    assert [one.n for one in made.citations] == list(range(1, len(cited) + 1))


SECTIONS = Documents(
    guide="\n\n".join(
        ["intro", "Set-up: one", "Set-up: two", "Set-up > Keys: three", "Set-up: four", "Use: five", "Use: six", "end"]
    )
)


@pytest.mark.parametrize(
    ("ordinal", "cited"),
    [
        (2, (1, 4)),  # the section, with the one below it
        (3, (3, 3)),  # the one below alone
        (5, (5, 6)),
        (0, (0, 0)),  # before the first heading
    ],
)
async def test_a_section_is_what_stands_under_the_same_heading(ordinal: int, cited: tuple[int, int]):
    made = await SECTIONS.prompt(("guide", ordinal), context="section")
    first, last = SECTIONS.find(("guide", cited[0]), ("guide", cited[1]))
    assert SECTIONS.cited(made.citations) == [SECTIONS.texts["guide"][first.start : last.end]]


async def test_a_long_section_is_read_to_its_end():
    long = Documents(a="\n\n".join(f"Part: p{n}" for n in range(60)) + "\n\nOther: q")
    made = await long.prompt(("a", 30), context="section")
    assert long.cited(made.citations) == [long.texts["a"].removesuffix("\n\nOther: q")]


async def test_no_more_is_read_than_the_budget_has_room_for():
    long = Documents(a="\n\n".join(f"{n:04} " + "word " * 80 for n in range(500)))  # about 115 tokens each
    await long.prompt(("a", 250), context="section", budget_tokens=500)
    assert len(long.asked) <= 16


async def test_passages_come_first_and_their_surroundings_by_rank_as_far_as_the_budget_goes():
    # Each passage takes 100 tokens; a head of its own takes less than 30.
    texts = {name: "\n\n".join(f"{name}{n}" + "x" * 348 for n in range(3)) for name in "abc"}
    three = Documents(**texts)
    places = [("a", 1), ("b", 1), ("c", 1)]
    alone = await three.prompt(*places, budget_tokens=390)
    assert [text[:2] for text in three.cited(alone.citations)] == ["a1", "b1", "c1"]
    more = await three.prompt(*places, budget_tokens=390 + 210)
    assert [text[:2] for text in three.cited(more.citations)] == ["a0", "b1", "c1"]
    assert [text.count("x" * 348) for text in three.cited(more.citations)] == [3, 1, 1]
    one_more = await three.prompt(*places, budget_tokens=390 + 320)
    # Behind a passage before in front of it.
    assert [text[:2] for text in three.cited(one_more.citations)] == ["a0", "b1", "c1"]
    assert [text.count("x" * 348) for text in three.cited(one_more.citations)] == [3, 2, 1]


async def test_a_passage_cut_to_the_budget_does_not_grow():
    big = Documents(a="\n\n".join([f"first {'word ' * 400}", "tiny"]))
    made = await big.prompt(("a", 0), budget_tokens=100)
    (text,) = big.cited(made.citations)
    assert text in made.prompt
    assert "tiny" not in made.prompt


async def test_what_another_document_shows_already_is_not_shown_again():
    same = Documents(a="a0\n\nthe same\n\na2", b="b0\n\nthe same\n\nb2")
    made = await same.prompt(("a", 0), ("b", 0))
    assert same.cited(made.citations) == ["a0\n\nthe same", "b0"]
    assert made.prompt.count("the same") == 1


async def test_a_document_that_was_replaced_meanwhile_is_not_mixed():
    before, after = Documents(a="a0\n\na1\n\na2"), Documents(a="longer a0\n\nlonger a1\n\nlonger a2")
    found = before.find(("a", 1))
    surroundings = await load_surroundings(found, "window", after.load, budget_tokens=PLENTY)
    made = build_prompt("What?", found, budget_tokens=PLENTY, surroundings=surroundings)
    assert before.cited(made.citations) == ["a1"]


@pytest.mark.parametrize("context", ["window", "section"])
async def test_of_any_documents_spans_are_exact_and_the_budget_holds_and_nothing_comes_twice(context: Context):
    dice = random.Random(3)
    for _ in range(60):
        texts = {
            name: "".join(
                f"{dice.choice(['One', 'Two', 'Two > In'])}: {name}{n} {'wört ' * dice.randint(0, 40)}中{'。' * n}"
                + dice.choice(["\n\n", " \n\n", "\n\n\n\n"])
                for n in range(dice.randint(1, 12))
            )
            for name in "abc"
        }
        documents = Documents(**texts)
        found = dice.sample(sorted(documents.chunks), min(5, len(documents.chunks)))
        budget = dice.choice([60, 200, 500, 1000, 3000])
        made = await documents.prompt(*[id[2:] for id in found], context=context, budget_tokens=budget)
        alone = await documents.prompt(*[id[2:] for id in found], context="passage", budget_tokens=budget)

        fence = re.search(r"^-----[0-9a-f]{12}-----", made.prompt, re.MULTILINE)
        assert fence
        assert sum(map(estimate_tokens, _blocks(made.prompt, fence[0]))) <= budget
        cited = documents.cited(made.citations)
        assert all(text in made.prompt for text in cited)
        spans = sorted((one.document_id, one.start, one.end) for one in made.citations)
        assert all(one[0] != other[0] or one[2] <= other[1] for one, other in pairwise(spans))
        # Every passage that is shown alone is shown here too, and the blocks are in the same order.
        best = [
            next(n for n, one in enumerate(made.citations) if _covers(one, alone_one)) for alone_one in alone.citations
        ]
        assert list(dict.fromkeys(best)) == sorted(set(best))
        assert set(best) == set(range(len(made.citations)))


def _covers(one: Citation, other: Citation) -> bool:
    return one.document_id == other.document_id and one.start <= other.start and other.end <= one.end


def _blocks(prompt: str, fence: str) -> list[str]:
    return [fence + part.rstrip("\n") for part in prompt.split(fence)[1:] if part.startswith(" [")]


# In the service.

MANUAL = "\n\n".join(
    [
        "# Turbine",
        "## Oil\n\n" + " ".join(f"The oil of gear {n} is changed every year." for n in range(60)),
        "## Storms\n\n" + " ".join(f"In storm {n} the rotor is stopped." for n in range(60)),
        "A zebra crossing marks the way out.",
        "## Winter\n\n" + " ".join(f"In winter {n} the crew rests." for n in range(60)),
    ]
)


@pytest.fixture
async def service(owner_url: str, service_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    (tmp_path / "copy.md").write_text(MANUAL.replace("zebra", "giraffe").replace("storm", "gale"))
    settings = Settings(
        database_url=owner_url,
        service_url=service_url,
        local=tmp_path,
        intent="off",
        timeout_s=120,
        source_timeout_s=100,
    )
    async with open_service(settings) as service:
        await service.ingest([Document("m", "manual", "Manual", MANUAL, metadata={"year": 2024})], "docs")
        yield service


async def ask(service: Service, text: str = "zebra crossing", **more: Any) -> Prompt:
    return await service.augment(text, top_k=1, **{"collection": "docs", "sources": ["fulltext"], **more})


async def test_the_section_around_a_stored_passage_is_cited_exactly(service: Service):
    spans = split_passages(MANUAL)
    (ordinal,) = [n for n, span in enumerate(spans) if "zebra" in MANUAL[span.start : span.end]]
    heading = [n for n, span in enumerate(spans) if span.heading == spans[ordinal].heading]
    assert len(heading) > 1
    passage, window, section = [
        (await ask(service, context=context)).citations for context in ("passage", "window", "section")
    ]
    assert [(one.start, one.end) for one in passage] == [(spans[ordinal].start, spans[ordinal].end)]
    assert [(one.start, one.end) for one in window] == [(spans[ordinal - 1].start, spans[ordinal + 1].end)]
    assert [(one.start, one.end) for one in section] == [(spans[heading[0]].start, spans[heading[-1]].end)]
    assert passage[0].chunk_id == window[0].chunk_id == section[0].chunk_id
    shown = (await ask(service, context="section")).prompt
    assert MANUAL[section[0].start : section[0].end] in shown


async def test_the_setting_is_what_a_request_does_not_say(service: Service):
    wide = await ask(service, context="window")
    narrow = await ask(service)
    changed, difference = await service.replay_compared(narrow.trace_id, changes={"context": "window"})
    assert isinstance(changed, Prompt)
    assert changed.citations == wide.citations
    assert difference["same"], "the hits are"
    assert list(difference["outcome"]) == ["prompt"]
    told = difference["outcome"]["prompt"]
    assert (told["before"]["tokens"], told["after"]["tokens"]) == (narrow.tokens, wide.tokens)


async def test_hits_are_the_same_whatever_is_shown_around_them(service: Service):
    alone, section = await ask(service), await ask(service, context="section")
    assert alone.hits == section.hits
    with pytest.raises(BadRequest, match="context"):
        await ask(service, context="page")


async def test_passages_of_a_folder_have_their_surroundings_too(service: Service):
    prompt = await ask(service, "giraffe crossing", collection="local", sources=["local"], context="window")
    text = MANUAL.replace("zebra", "giraffe").replace("storm", "gale")
    (cited,) = prompt.citations
    assert "giraffe" in text[cited.start : cited.end]
    assert cited.end - cited.start > 1800
    assert text[cited.start : cited.end] in prompt.prompt


async def test_without_the_database_the_passages_alone_are_shown(service: Service, monkeypatch: pytest.MonkeyPatch):
    load = Catalogue.load
    calls = 0

    async def fail_later(self: Catalogue, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Unavailable("PostgreSQL", "the connection was lost")
        return await load(self, *given)

    monkeypatch.setattr(Catalogue, "load", fail_later)
    prompt = await ask(service, context="window")
    assert prompt.degraded == ("context_unavailable",)
    assert len(prompt.citations) == 1


async def test_surroundings_are_read_within_the_requests_time(service: Service, monkeypatch: pytest.MonkeyPatch):
    load = Catalogue.load
    calls = 0

    async def hang_later(self: Catalogue, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            await asyncio.sleep(200)
        return await load(self, *given)

    monkeypatch.setattr(Catalogue, "load", hang_later)
    async with asyncio.timeout(90):  # one source alone may take 100 s
        prompt = await ask(service, context="window", timeout_s=4.0)
    assert prompt.degraded == ("context_unavailable",)
    assert len(prompt.citations) == 1
