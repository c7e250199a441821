"""Web search: each provider's own shapes over real HTTP, what may go wrong, and the service around it."""

import asyncio
import gzip
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import date
from itertools import repeat
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent import Service, open_service
from agent.serve.cli import run
from agent.serve.cli.doctor import source_checks as doctor_sources
from agent.serve.exit_codes import BAD_INPUT
from agent.settings import Settings
from agent.testing import Fault, ReceivedRequest, ScriptedServer
from retrievers import registry
from retrievers.core.errors import BadFilter, BadRequest, TooCostly, Unavailable
from retrievers.core.filters import And, FieldCondition, Filter, Not, Or
from retrievers.core.metadata import Field
from retrievers.core.types import Collection, Hit, Query, Scope
from retrievers.http.json_client import ProviderRefusal
from retrievers.ingest.documents import Document
from retrievers.registry import Resources
from retrievers.web import build
from retrievers.web.factory import PROVIDERS
from retrievers.web.pages import PageText
from retrievers.web.provider import publication_day, strip_markup, truncate_search_text
from retrievers.web.retriever import Web
from retrievers.web.ttl_cache import TtlCache

KEY = "tvly-very-secret-0123"
DATED = Scope("t", (Collection(1, "t", "docs", fields={"published": Field("published", "date", "date")}),))
PENGUINS = Query("where do penguins live", "en", Scope("t", ()))

# One page as each provider describes it, and the request it is asked with.
PAGE = {
    "url": "https://a.example/penguins",
    "title": "Penguins",
    "text": "They live in the south.",
    "day": "2025-07-01",
}


def tavily(*pages: Any, **more: Any) -> Any:
    return {"query": "q", "answer": None, "images": [], "results": list(pages), "response_time": 0.5, **more}


def brave(*pages: Any, **more: Any) -> Any:
    return {"type": "search", "query": {"original": "q"}, "web": {"type": "search", "results": list(pages)}, **more}


def exa(*pages: Any, **more: Any) -> Any:
    return {"requestId": "1", "resolvedSearchType": "neural", "results": list(pages), **more}


def searxng(*pages: Any, **more: Any) -> Any:
    return {"query": "q", "results": list(pages), "answers": [], "unresponsive_engines": [], **more}


ANSWERS: dict[str, Callable[..., Any]] = {"tavily": tavily, "brave": brave, "exa": exa, "searxng": searxng}
PAGES: dict[str, Any] = {
    "tavily": {
        "url": PAGE["url"], "title": "Penguins", "content": PAGE["text"], "score": 0.9, "raw_content": None,
        "published_date": "Tue, 01 Jul 2025 10:00:00 GMT",
    },
    "brave": {
        "url": PAGE["url"], "title": "<strong>Penguins</strong>", "page_age": "2025-07-01T10:00:00",
        "description": "They <strong>live</strong> in the&#x20;south.", "age": "1 July 2025",
    },
    "exa": {
        "id": PAGE["url"], "url": PAGE["url"], "title": "Penguins", "highlights": [PAGE["text"]],
        "highlightScores": [0.4], "publishedDate": "2025-07-01T10:00:00.000Z", "score": None,
    },
    "searxng": {
        "url": PAGE["url"], "title": "Penguins", "content": PAGE["text"], "engine": "brave", "engines": ["brave"],
        "score": 1.0, "category": "general", "publishedDate": "2025-07-01T10:00:00",
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_key_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    assert KEY not in caplog.text


@pytest.fixture
async def open_web() -> AsyncIterator[Callable[..., Web]]:
    opened: list[Web] = []

    def make(provider: str, server: ScriptedServer | None = None, **options: Any) -> Web:
        address = {"web_base_url": server.root_url} if server else {}
        settings = Settings(
            **{"web_provider": provider, "web_api_key": KEY, "source_timeout_s": 60, **address, **options}
        )
        web = build(Resources(None, None, None, settings.model_dump()))
        assert web is not None
        opened.append(web)
        return web

    yield make
    for web in opened:
        await web.aclose()


def shown(hits: list[Hit]) -> list[tuple[str, str | None, str]]:
    return [(hit.chunk.title, hit.chunk.url, hit.chunk.text) for hit in hits if hit.chunk]


def asked(request: ReceivedRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(request.path).query)


async def failure(web: Web, query: Query = PENGUINS) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        await web.search(query)
    assert KEY not in str(caught.value)
    assert str(caught.value).isprintable()
    return caught.value


# Requests and answers of each provider


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_page_is_found_cited_dated_and_marked_untrusted(name: str, open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: ANSWERS[name](PAGES[name])) as server:
        (hit,) = await open_web(name, server).search(PENGUINS)
    assert shown([hit]) == [("Penguins", PAGE["url"], PAGE["text"])]
    assert hit.id == ("t", "web", PAGE["url"], 0)
    assert hit.chunk is not None
    assert (hit.chunk.metadata["published"], hit.chunk.metadata["untrusted"]) == ("2025-07-01", True)
    assert set(hit.chunk.metadata) == {"published", "untrusted", "retrieved_at"}


async def test_tavily_is_asked_as_it_wants(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: tavily()) as server:
        assert await open_web("tavily", server).search(PENGUINS) == []
    (request,) = server.requests
    assert (request.method, request.path, request.headers["authorization"]) == ("POST", "/search", f"Bearer {KEY}")
    assert request.body == {"query": "where do penguins live", "max_results": 20, "search_depth": "basic"}


async def test_brave_is_asked_as_it_wants(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: brave()) as server:
        web = open_web("brave", server)
        await web.search(PENGUINS)
        await web.search(replace(PENGUINS, text="企鹅住在哪里", language="zh", limit=5))
    english, chinese = server.requests
    assert (english.method, urlsplit(english.path).path) == ("GET", "/res/v1/web/search")
    assert english.headers["x-subscription-token"] == KEY
    assert asked(english) == {
        "q": ["where do penguins live"], "count": ["20"], "search_lang": ["en"], "result_filter": ["web"],
        "text_decorations": ["false"],
    }  # fmt: skip
    assert asked(chinese) == asked(english) | {"q": ["企鹅住在哪里"], "count": ["5"], "search_lang": ["zh-hans"]}


async def test_brave_without_web_results_has_found_nothing(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: {"type": "search", "query": {"original": "q"}}) as server:
        assert await open_web("brave", server).search(PENGUINS) == []


async def test_more_excerpts_of_a_page_are_one_text(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: brave({**PAGES["brave"], "extra_snippets": ["On ice.", 7, None]})) as server:
        (hit,) = await open_web("brave", server).search(PENGUINS)
    assert shown([hit])[0][2] == "They live in the south.\nOn ice."
    without = {**PAGES["exa"], "highlights": None, "summary": "In short."}
    with ScriptedServer(
        other=lambda _: exa({**PAGES["exa"], "highlights": ["a", "b"]}, {**without, "url": "https://b.example"})
    ) as server:
        texts = [text for _, _, text in shown(await open_web("exa", server).search(PENGUINS))]
    assert texts == ["a\nb", "In short."]


async def test_exa_is_asked_as_it_wants(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: exa()) as server:
        await open_web("exa", server).search(PENGUINS)
    (request,) = server.requests
    assert (request.method, request.path, request.headers["x-api-key"]) == ("POST", "/search", KEY)
    assert request.body == {
        "query": "where do penguins live", "type": "auto", "numResults": 20,
        "contents": {"highlights": {"maxCharacters": 2000}},
    }  # fmt: skip


async def test_the_web_is_asked_in_the_language_of_the_text_not_of_the_documents(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: searxng()) as server:
        await open_web("searxng", server).search(replace(PENGUINS, text="Wie ist das Wetter morgen in Berlin?"))
    assert asked(server.requests[0])["language"] == ["de"]


async def test_searxng_is_asked_at_its_own_address(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: searxng()) as server:
        await open_web(f"searxng:{server.root_url}/sx/search", web_api_key=None).search(PENGUINS)
        await open_web(f"searxng:{server.root_url}/", web_api_key="me:pass word").search(PENGUINS)
        await open_web("searxng:http://127.0.0.1:1", server, web_api_key="token").search(PENGUINS)
    open_one, named, token = server.requests
    assert urlsplit(open_one.path).path == "/sx/search"
    assert asked(open_one) == {
        "q": ["where do penguins live"], "format": ["json"], "language": ["en"]
    }  # fmt: skip
    assert "authorization" not in open_one.headers
    assert named.headers["authorization"] == "Basic bWU6cGFzcyB3b3Jk"
    assert token.headers["authorization"] == "Bearer token"


async def test_engines_of_searxng_that_gave_no_answer_fail_it_only_when_nothing_was_found(
    open_web: Callable[..., Web], caplog: pytest.LogCaptureFixture
):
    silent = {"unresponsive_engines": [["google", "CAPTCHA"], ["bing", "time\x1bout"], 7, []]}
    with ScriptedServer(other=lambda _: searxng(**silent)) as server:
        error = await failure(open_web("searxng", server))
    assert error.reason == "no engine of searxng has answered: google (CAPTCHA), bing (time out)"
    with ScriptedServer(other=lambda _: searxng(PAGES["searxng"], **silent)) as server:
        assert len(await open_web("searxng", server).search(PENGUINS)) == 1
    assert "some engines of searxng have not answered: google (CAPTCHA)" in caplog.text


async def test_a_search_text_is_cut_to_what_the_provider_takes(open_web: Callable[..., Web]):
    text = "penguin " * 100
    with ScriptedServer(other=lambda request: brave() if request.method == "GET" else tavily()) as server:
        await open_web("tavily", server).search(replace(PENGUINS, text=text))
        await open_web("brave", server).search(replace(PENGUINS, text="a b\x00\n" * 100))
        await open_web("tavily", server).search(replace(PENGUINS, text="企" * 500))
    words, many, chinese = server.requests
    assert words.body["query"] == " ".join(["penguin"] * 50)  # 399 characters
    assert asked(many)["q"] == [" ".join(["a b"] * 25)]
    assert chinese.body["query"] == "企" * 400
    assert [truncate_search_text("one two", most) for most in (3, 4, 6, 7)] == ["one", "one", "one two"[:6], "one two"]


# What goes wrong


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (302, ProviderRefusal, "redirects: correct the address"),
        (401, ProviderRefusal, "WEB_API_KEY"),
        (402, ProviderRefusal, "no credit"),
        (403, ProviderRefusal, ""),
        (404, ProviderRefusal, "correct the address"),
        (422, TooCostly, "refuses this search"),
        (429, ProviderRefusal, ""),
        (500, ProviderRefusal, "answers with an error"),
    ],
)
async def test_an_error_says_what_to_do(
    name: str, status: int, kind: type[Unavailable], said: str, open_web: Callable[..., Web]
):
    fault = Fault(status=status, body=json.dumps({"error": {"message": f"no {KEY}"}}), headers={"Retry-After": "9"})
    with ScriptedServer(faults=repeat(fault)) as server:
        error = await failure(open_web(name, server))
    assert isinstance(error, kind)
    assert error.reason.startswith(name)
    assert said in error.reason
    assert error.reason.endswith(f"(HTTP {status}: no ***)")
    assert len(server.requests) == 1  # it asks for 9 seconds, which is too long to wait
    if kind is ProviderRefusal:
        assert error.retry_after_s == 9


async def test_searxng_says_how_its_refusals_are_mended(open_web: Callable[..., Web]):
    with ScriptedServer(faults=[Fault(status=403), *[Fault(status=429)] * 2]) as server:
        web = open_web("searxng", server)
        assert "add json to search.formats in its settings.yml" in str(await failure(web))
        assert "limiter.toml" in str(await failure(web))


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(reset=True), "the connection failed"),
        (Fault(truncated=True), "the connection failed"),
        (Fault(body=""), "not JSON"),
        (Fault(body="<html>"), "not JSON"),
        (Fault(body="[" * 20_000), "more than 50 levels"),
        (Fault(body="null"), "no "),
        (Fault(body="[]"), "no "),
        (Fault(body="{}"), "no list"),
        (Fault(body='{"results": {"a": 1}, "web": {"results": "x"}, "query": 1}'), "no list"),
        (Fault(body=b'{"results": ["' + b"a" * 10_000_000 + b'"]}'), "longer than"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_no_answer(
    name: str, fault: Fault, reason: str, open_web: Callable[..., Web]
):
    with ScriptedServer(faults=repeat(fault), other=lambda _: ANSWERS[name](PAGES[name])) as server:
        assert reason in (await failure(open_web(name, server))).reason


async def test_a_silent_provider_ends_in_time(open_web: Callable[..., Web]):
    with ScriptedServer(faults=[Fault(delay_s=30)]) as server:
        error = await failure(open_web("tavily", server, source_timeout_s=0.1))
    assert error.reason == "no answer within 0.1 s"


@pytest.mark.parametrize("name", ANSWERS)
async def test_hostile_pages_lose_only_themselves(name: str, open_web: Callable[..., Web]):
    good = PAGES[name]
    text = {"tavily": "content", "brave": "description", "exa": "highlights", "searxng": "content"}[name]

    def hostile(n: int, **changes: Any) -> Any:
        return {**good, "url": f"https://h{n}.example/", **changes}

    def of(words: str) -> Any:
        return [words] if name == "exa" else words

    pages = [
        7, None, [], "text", {},
        dict.fromkeys(good, 7), dict.fromkeys(good), {key: [{}] for key in good}, {key: {} for key in good},
        hostile(0, url="javascript:alert(1)"), hostile(0, url="http://[bad/"), hostile(0, url="https:///path"),
        hostile(0, url="/relative"), hostile(0, url="https://a.example/\njavascript:alert(1)"),
        hostile(1, title="T\x1b[31m\ud800\n", **{text: of("a\x00b\x1b\udfff c")}),
        hostile(2, score=float("nan"), **{text: of("<script>alert(1)</script> List<String>")}),
        hostile(3, title=None, score=10**400, published_date="x" * 9999, page_age=[], publishedDate=-1),
        hostile(4, **{text: of("y" * 100_000)}),
        good,
    ]  # fmt: skip
    body = json.dumps(ANSWERS[name](*pages))
    with ScriptedServer(faults=[Fault(body=body)], other=lambda _: {}) as server:
        hits = await open_web(name, server).search(PENGUINS)
    found = {url: (title, text) for title, url, text in shown(hits)}
    assert found.pop(PAGE["url"]) == ("Penguins", PAGE["text"])
    assert found.pop("https://h1.example/") == ("T[31m", "ab c")
    assert found.pop("https://h2.example/") == ("Penguins", "<script>alert(1)</script> List<String>")
    assert found.pop("https://h3.example/")[0] == "https://h3.example/"
    assert found.pop("https://h4.example/")[1] == "y" * 4_000
    assert found == {}


async def test_a_page_is_found_once_however_it_is_linked_to(open_web: Callable[..., Web]):
    urls = [
        "https://A.example/p?id=7&utm_source=x#part", "https://a.example/p?gclid=1&id=7", "https://a.example/p?id=8",
        "https://a.example", "https://a.example/#top", "https://a.example/?fbclid=2",
    ]  # fmt: skip
    pages = [{**PAGES["tavily"], "url": url, "score": None} for url in urls]
    with ScriptedServer(other=lambda _: tavily(*pages)) as server:
        hits = await open_web("tavily", server).search(PENGUINS)
    assert [hit.id.document_id for hit in hits] == [
        "https://a.example/p?id=7", "https://a.example/p?id=8", "https://a.example/",
    ]  # fmt: skip
    assert shown(hits)[0][1] == "https://A.example/p?id=7&utm_source=x#part"


# Answers are kept for a while


async def test_the_same_search_is_made_once(open_web: Callable[..., Web]):
    with ScriptedServer(other=lambda _: tavily(PAGES["tavily"])) as server:
        web = open_web("tavily", server)
        first, again = await web.search(PENGUINS), await web.search(PENGUINS)
        assert len(server.requests) == 1
        assert first == again  # with the moment at which it was really found
        await web.search(replace(PENGUINS, text="where do walruses live"))
        await web.search(replace(PENGUINS, limit=5))
        (other,) = await web.search(replace(PENGUINS, scope=Scope("u", ())))
    assert len(server.requests) == 4
    assert other.id.tenant == "u"


async def test_a_failure_is_not_kept(open_web: Callable[..., Web]):
    with ScriptedServer(faults=[Fault(status=401)], other=lambda _: tavily(PAGES["tavily"])) as server:
        web = open_web("tavily", server)
        await failure(web)
        assert len(await web.search(PENGUINS)) == 1


def test_what_was_found_is_kept_for_a_while_and_not_without_bound():
    now = 100.0
    recent: TtlCache[str, int] = TtlCache(most=2, keep_s=10, clock=lambda: now)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.put("a", 3)
    recent.put("c", 4)
    assert [recent.get(key) for key in "abc"] == [3, None, 4]
    now = 109.9
    assert recent.get("a") == 3
    now = 110.0
    assert recent.get("a") is None


# Filters


def published(op: Any, day: str) -> FieldCondition:
    return FieldCondition(op, "published", day)


async def test_only_pages_known_to_satisfy_a_date_are_found(open_web: Callable[..., Web]):
    pages = [
        {**PAGES["tavily"], "url": f"https://a.example/{day}", "published_date": day}
        for day in ("2025-06-30", "2025-07-01", "2025-07-31", "2025-08-01", None, "soon")
    ]
    july = And((published("gte", "2025-07-01"), published("lt", "2025-08-01")))

    async def found(web: Web, wanted: Filter) -> list[str]:
        hits = await web.search(replace(PENGUINS, scope=DATED, filter=wanted))
        return sorted(hit.id.document_id[-10:] for hit in hits)

    with ScriptedServer(other=lambda _: tavily(*pages)) as server:
        web = open_web("tavily", server)
        assert await found(web, july) == ["2025-07-01", "2025-07-31"]
        assert await found(web, published("eq", "2025-07-31")) == ["2025-07-31"]
        assert await found(web, Not(july)) == ["2025-06-30", "2025-08-01"]
        assert await found(web, Or((published("eq", "2025-06-30"), published("gt", "2025-07-31")))) == [
            "2025-06-30", "2025-08-01",
        ]  # fmt: skip
        assert await found(web, FieldCondition("exists", "published", False)) == []
    asked_for = [
        (one.body.get("topic"), one.body.get("start_date"), one.body.get("end_date")) for one in server.requests
    ]
    assert asked_for == [
        ("news", "2025-06-30", "2025-08-02"), ("news", "2025-07-30", "2025-08-01"), (None, None, None),
    ]  # fmt: skip


async def test_days_that_cannot_be_are_not_asked_for(open_web: Callable[..., Web]):
    never = And((published("gte", "2026-01-10"), published("lt", "2026-01-01")))
    with ScriptedServer() as server:
        assert await open_web("brave", server).search(replace(PENGUINS, scope=DATED, filter=never)) == []
    assert server.requests == []


async def test_each_provider_is_told_the_days(open_web: Callable[..., Web]):
    query = replace(PENGUINS, scope=DATED, filter=published("gte", "2025-07-02"))
    with ScriptedServer(other=lambda request: brave() if "/res/" in request.path else exa()) as server:
        await open_web("brave", server).search(
            replace(query, filter=And((query.filter, published("lt", "2025-08-01"))))
        )
        await open_web("brave", server).search(replace(query, filter=published("lte", "9999-12-31")))
        await open_web("exa", server).search(query)
        await open_web("searxng", server).search(query)
        await open_web("searxng", server).search(replace(query, filter=published("gt", date.today().isoformat())))
    both, until, exa_request, long_ago, today = server.requests
    assert asked(both)["freshness"] == ["2025-07-01to2025-08-02"]
    assert asked(until)["freshness"] == ["1990-01-01to9999-12-31"]
    assert exa_request.body["startPublishedDate"] == "2025-07-01T00:00:00.000Z"
    assert "endPublishedDate" not in exa_request.body
    assert "time_range" not in asked(long_ago)
    assert asked(today)["time_range"] == ["month"]


@pytest.mark.parametrize(
    ("wanted", "scope", "named"),
    [
        (FieldCondition("eq", "author", "Guido"), DATED, '"author"'),
        (FieldCondition("ne", "author", "Guido"), DATED, '"author"'),
        (And((published("gt", "2025-01-01"), FieldCondition("eq", "team", "red"))), DATED, '"team"'),
        (published("gt", "2025-01-01"), Scope("t", ()), '"published"'),
        (
            FieldCondition("eq", "published", True),
            Scope("t", (Collection(1, "t", "d", fields={"published": Field("published", "boolean", "boolean")}),)),
            '"published"',
        ),
    ],
)
async def test_any_other_filter_is_refused_before_anything_is_asked(
    wanted: Filter, scope: Scope, named: str, open_web: Callable[..., Web]
):
    with ScriptedServer() as server, pytest.raises(BadFilter, match=f"cannot be filtered by {named}"):
        await open_web("tavily", server).search(replace(PENGUINS, scope=scope, filter=wanted))
    assert server.requests == []


def test_a_day_is_read_from_every_form_in_which_it_comes():
    forms = ("2025-07-01", "2025-07-01T23:59:59Z", " 2025-07-01T10:00:00.000+08:00", "Tue, 01 Jul 2025 10:00:00 GMT")
    assert {publication_day(form) for form in forms} == {"2025-07-01"}
    nothing = ("", "1 day ago", "Tue, 99 Foo 2025", None, 7, "0000-00-00", "Mon, 1 Jan 2025 00:00:00 +9999999999")
    assert [publication_day(form) for form in nothing] == [None] * len(nothing)


def test_a_snippet_loses_its_marks_and_no_other_brackets():
    assert (
        strip_markup('a <strong class="x">b</strong>&amp;<br/>&lt;i&gt; List<String> 1 < 2')
        == "a b&<i> List<String> 1 < 2"
    )
    assert strip_markup(None) == strip_markup(["<b>"]) == ""


# Pages behind the best results


@dataclass(frozen=True)
class OnePage:
    text: str
    published: str | None = None


class Fetcher:
    """Stands in for the guarded fetcher: pages by address, an error, or none in time."""

    def __init__(self, **pages: Any) -> None:
        self.pages, self.asked = pages, list[str]()

    async def fetch(self, url: str, *, timeout_s: float) -> PageText:
        self.asked.append(url)
        page = self.pages[urlsplit(url).path[1:]]
        if isinstance(page, Exception):
            raise page
        if isinstance(page, float):
            await asyncio.sleep(page)
        return page  # type: ignore[no-any-return]


async def test_the_best_pages_are_read_and_their_best_passage_takes_the_place_of_the_snippet(
    open_web: Callable[..., Web],
):
    filler = "Nothing of interest stands in this paragraph at all. " * 30
    long = f"{filler}\n\nPenguins live in the south, and live on fish.\n\n{filler}"
    fetcher = Fetcher(
        a=OnePage(long, "2024-05-06"), b=BadRequest("refused"), c=Unavailable("b", "gone"), d=OnePage("d")
    )
    pages = [
        {**PAGES["tavily"], "url": f"https://x.example/{name}", "score": None, "published_date": None}
        for name in "abcd"
    ]
    with ScriptedServer(other=lambda _: tavily(*pages)) as server:
        web = replace(open_web("tavily", server), fetcher=fetcher)
        hits = await web.search(PENGUINS)
        assert fetcher.asked == [f"https://x.example/{name}" for name in "abc"]
    chunk = hits[0].chunk
    assert chunk is not None
    assert "Penguins live in the south" in chunk.text
    assert len(chunk.text) < 2_100
    assert chunk.text == long[chunk.start : chunk.end]
    assert (chunk.metadata["published"], chunk.metadata["untrusted"]) == ("2024-05-06", True)
    assert [text for _, _, text in shown(hits[1:])] == [PAGE["text"]] * 3


async def test_a_slow_page_or_an_empty_one_keeps_its_snippet(open_web: Callable[..., Web]):
    fetcher = Fetcher(a=30.0, b=OnePage(" \x00"))
    pages = [{**PAGES["tavily"], "url": f"https://x.example/{name}", "score": None} for name in "ab"]
    with ScriptedServer(other=lambda _: tavily(*pages)) as server:
        web = replace(open_web("tavily", server, source_timeout_s=2), fetcher=fetcher)
        hits = await web.search(PENGUINS)
    assert [text for _, _, text in shown(hits)] == [PAGE["text"]] * 2


# ddgs: a library that reads search engines' pages


class Engines:
    """What the search engines give or raise, and what they were asked."""

    answer: Any = ()

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, dict[str, Any]]] = []


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """The library without the network."""
    library = pytest.importorskip("ddgs.ddgs")
    engines = Engines()

    def text(self: Any, query: str, **options: Any) -> Any:
        engines.asked.append((query, self._timeout, options))
        if isinstance(engines.answer, Exception):
            raise engines.answer
        return engines.answer

    monkeypatch.setattr(library.DDGS, "text", text)
    return engines


async def test_ddgs_is_asked_in_the_region_of_the_language(engines: Engines, open_web: Callable[..., Web]):
    engines.answer = [{"title": "Penguins", "href": PAGE["url"], "body": "They live &amp; swim."}, 7, {}]
    web = open_web("ddgs", web_api_key=None, source_timeout_s=3)
    assert shown(await web.search(PENGUINS)) == [("Penguins", PAGE["url"], "They live & swim.")]
    await web.search(replace(PENGUINS, text="企鹅", language="zh", limit=3))
    assert engines.asked == [
        ("where do penguins live", 3, {"region": "us-en", "max_results": 20}),
        ("企鹅", 3, {"region": "cn-zh", "max_results": 3}),
    ]


async def test_errors_of_ddgs_are_told_apart(engines: Engines, open_web: Callable[..., Web]):
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

    web = open_web("ddgs", source_timeout_s=3)
    engines.answer = DDGSException("No results found.")
    assert await web.search(PENGUINS) == []
    other = replace(PENGUINS, text="another")
    engines.answer = RatelimitException("https://html.duckduckgo.com 202")
    error = await failure(web, other)
    assert isinstance(error, ProviderRefusal)
    assert (error.status, error.reason) == (429, "ddgs: the search engines allow no more searches for now")
    engines.answer = DDGSException(RatelimitException("202"))
    assert isinstance(await failure(web, other), ProviderRefusal)
    engines.answer = TimeoutException("timed out")
    assert (await failure(web, other)).reason == "ddgs: no search engine has answered within 3 s"
    engines.answer = DDGSException("ConnectError: https://user@engine.example")
    assert (await failure(web, other)).reason == "ddgs: no search engine has answered"


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Fault(parts=repeat(b"a" * 65_536)), "its answer is longer than 2 MiB"),
        (
            Fault(body=gzip.compress(bytes(16 << 20)), headers={"Content-Encoding": "gzip"}),
            "its answer is longer than 2 MiB",
        ),
        (Fault(body=b"<li>" * 60_000), "its answer has more than 50,000 tags"),
    ],
    ids=["without an end", "bomb", "tags"],
)
async def test_a_page_that_ddgs_reads_is_bounded_and_its_memory_given_back(
    page: Fault, reason: str, open_web: Callable[..., Web], monkeypatch: pytest.MonkeyPatch
):
    given_back: list[bool] = []
    monkeypatch.setattr("retrievers.core.process_memory.release_memory", lambda: given_back.append(True))
    library, mojeek = pytest.importorskip("ddgs.ddgs"), pytest.importorskip("ddgs.engines.mojeek")
    monkeypatch.setitem(library.ENGINES, "text", {"mojeek": mojeek.Mojeek})
    found = b'<ul class="results"><li><h2><a href="https://a.example/">P</a></h2><p class="s">South</p></li></ul>'
    with ScriptedServer(other=lambda _: {}, faults=[Fault(body=found), page]) as server:
        monkeypatch.setattr(mojeek.Mojeek, "search_url", server.root_url)
        web = open_web("ddgs", source_timeout_s=30)
        assert shown(await web.search(PENGUINS)) == [("P", "https://a.example/", "South")]
        error = await failure(web, replace(PENGUINS, text="another"))
    assert error.reason == f"ddgs: {reason}"
    assert len(given_back) == 2
    assert server.bytes_sent < 32 << 20


async def test_ddgs_dates_no_page_so_it_takes_no_date(engines: Engines, open_web: Callable[..., Web]):
    with pytest.raises(BadFilter, match='cannot be filtered by "published"'):
        await open_web("ddgs").search(replace(PENGUINS, scope=DATED, filter=published("gt", "2025-01-01")))
    assert engines.asked == []


# Settings


def test_there_is_no_web_without_a_provider_and_nothing_is_loaded_for_it():
    for given in (None, "", "  "):
        assert registry.build("web", Resources(None, None, None, {"web_provider": given})) is None
    code = "import sys, retrievers.web; print({'httpx2', 'ddgs', 'tenacity'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_key_is_not_in_what_a_program_shows_of_the_source(open_web: Callable[..., Web]):
    assert KEY not in repr(open_web("tavily"))


@pytest.mark.parametrize(
    ("options", "where", "message"),
    [
        ({"web_provider": "bing"}, "web_provider", '"brave", "ddgs", "exa", "searxng:URL", "tavily"'),
        ({"web_provider": "Tavily\n"}, "web_provider", 'no web provider "Tavily"'),
        ({"web_provider": "tavily:http://a.example"}, "web_provider", "no web provider"),
        ({"web_provider": "tavily"}, "web_api_key", "WEB_API_KEY is missing: tavily needs one"),
        ({"web_provider": "searxng"}, "web_provider", "is not a valid address such as searxng:http://"),
        ({"web_provider": "searxng:localhost"}, "web_provider", "is not a valid address such as searxng:http://"),
        (
            {"web_provider": "searxng:http://a.example/?q=1"},
            "web_provider",
            "is not a valid address such as searxng:http://",
        ),
        ({"web_provider": "searxng:http://me:secret@a.example"}, "web_provider", "put name:password into WEB_API_KEY"),
        (
            {"web_provider": "searxng:http://a.example:99999"},
            "web_provider",
            "is not a valid address such as searxng:http://",
        ),
        (
            {"web_provider": "exa", "web_api_key": KEY, "web_base_url": "ftp://a"},
            "web_base_url",
            "is not a valid address such as http://",
        ),
        (
            {"web_provider": "exa", "web_api_key": KEY, "web_base_url": "http://[a"},
            "web_base_url",
            "is not a valid address such as http://",
        ),
        ({"web_provider": "ddgs", "web_base_url": "http://a.example"}, "web_base_url", "ddgs takes no address"),
    ],
)
def test_settings_that_cannot_be_used_are_named(options: dict[str, Any], where: str, message: str):
    with pytest.raises(BadRequest) as caught:
        build(Resources(None, None, None, options))
    assert caught.value.where == where
    assert message in str(caught.value)
    assert KEY not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_provider_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.web.factory.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=r"pip install '\.\[web\]'"):
        build(Resources(None, None, None, {"web_provider": "ddgs"}))


@pytest.mark.parametrize("name", sorted(set(PROVIDERS) - {"searxng", "ddgs"}))
def test_each_provider_has_its_own_address(name: str):
    web = build(Resources(None, None, None, {"web_provider": name, "web_api_key": KEY}))
    assert web is not None
    assert web.api.address == {
        "tavily": "https://api.tavily.com", "brave": "https://api.search.brave.com", "exa": "https://api.exa.ai",
    }[name]  # fmt: skip


# Within the service


@pytest.fixture
async def serve(owner_url: str, service_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Opens the service over one document, with the web at a scripted server."""
    async with AsyncExitStack() as opened:

        async def make(server: ScriptedServer, **more: Any) -> Service:
            database = {"database_url": owner_url, "service_url": service_url}
            web = {"web_provider": "tavily", "web_api_key": KEY, "web_base_url": server.root_url}
            service = await opened.enter_async_context(open_service(Settings(**{**database, **web, **more})))
            penguins = Document(
                "a", "a", "a", "Penguins march.", metadata={"author": "Guido van Rossum", "status": "Final"}
            )
            await service.ingest([penguins], "docs")
            return service

        yield make


NEWS = {
    "url": "https://www.postgresql.org/about/", "title": "PostgreSQL 18.1 released", "score": 0.9,
    "content": "The latest stable version is 18.1.",
}  # fmt: skip
FRESH = "What is the latest stable version of PostgreSQL?"


async def test_a_question_for_the_world_is_answered_from_the_web_and_cited(serve: Callable[..., Any]):
    with ScriptedServer(other=lambda _: tavily(NEWS)) as server:
        service = await serve(server)
        prompt = await service.augment(FRESH)
        explained = await service.explain(prompt.trace_id)
    first, *others = prompt.outcomes
    assert (first.source, first.status, first.hits) == ("web", "ok", 1)
    assert {one.reason for one in others} == {"not needed"}
    (citation,) = prompt.citations
    assert (citation.n, citation.url, citation.title) == (1, NEWS["url"], NEWS["title"])
    assert f"[1] PostgreSQL 18.1 released ({NEWS['url']})" in prompt.prompt
    assert "The latest stable version is 18.1." in prompt.prompt
    assert prompt.hits[0].metadata["untrusted"] is True
    (request,) = server.requests
    assert request.body["query"] == FRESH  # as it is, and once
    assert KEY not in json.dumps(explained) + prompt.model_dump_json() + repr(service.settings)


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (None, "ok", None),
        (Fault(body=json.dumps(tavily())), "empty", None),
        (Fault(status=500), "error", "tavily answers with an error (HTTP 500"),
        (Fault(status=429, headers={"Retry-After": "60"}), "error", "tavily allows no more searches for now"),
        (Fault(status=401), "error", "tavily does not accept WEB_API_KEY"),
        (Fault(body="{"), "error", "its answer is not JSON"),
        (Fault(reset=True), "error", "the connection failed"),
        (Fault(delay_s=30), "timeout", "no answer after 0.5 s"),
    ],
)
async def test_the_outcome_says_what_became_of_a_search(
    fault: Fault | None, status: str, reason: str | None, serve: Callable[..., Any]
):
    with ScriptedServer(faults=repeat(fault), other=lambda _: tavily(NEWS)) as server:
        service = await serve(server, source_timeout_s=0.5 if status == "timeout" else 60)
        result = await service.retrieve("postgres", sources=("web",))
    (outcome,) = result.outcomes
    assert (outcome.source, outcome.status, len(result.hits)) == ("web", status, 1 if status == "ok" else 0)
    assert (outcome.reason or "").startswith(f"web is unavailable: {reason}" if reason else "")
    assert result.degraded == (("web_unavailable",) if reason else ())


async def test_the_documents_are_asked_when_the_web_fails(serve: Callable[..., Any]):
    with ScriptedServer(faults=repeat(Fault(status=500))) as server:
        service = await serve(server)
        result = await service.retrieve(FRESH)
    assert result.outcomes[0].source == "web"
    assert "web_unavailable" in result.degraded
    assert [hit.document_id for hit in result.hits] == ["a"]


async def test_a_search_that_the_provider_refuses_does_not_close_it_to_others(serve: Callable[..., Any]):
    with ScriptedServer(faults=[Fault(status=422)] * 12, other=lambda _: tavily(NEWS)) as server:
        service = await serve(server)
        for _ in range(12):
            (outcome,) = (await service.retrieve("postgres", sources=("web",))).outcomes
            assert outcome.status == "error"
        assert (await service.retrieve("postgres", sources=("web",))).outcomes[0].status == "ok"


async def test_the_web_never_answers_under_a_filter_that_it_cannot_apply(serve: Callable[..., Any]):
    wanted = {"type": "eq", "key": "status", "value": "Final"}
    with ScriptedServer(other=lambda _: tavily(NEWS)) as server:
        service = await serve(server)
        result = await service.retrieve("penguins", sources=("web", "fulltext"), filter=wanted)
        with pytest.raises(BadRequest, match='cannot be filtered by "status"'):
            await service.retrieve("penguins", sources=("web",), filter=wanted, intent="off")
    assert server.requests == []
    assert [(one.source, one.status) for one in result.outcomes][:2] == [("web", "skipped"), ("fulltext", "ok")]
    assert [hit.document_id for hit in result.hits] == ["a"]


async def test_what_was_only_read_from_a_question_is_left_out_for_the_web_and_said(serve: Callable[..., Any]):
    with ScriptedServer(other=lambda _: tavily(NEWS)) as server:
        service = await serve(server)
        result = await service.retrieve("penguins by Guido van Rossum", sources=("web",))
    assert [(one.status, one.step) for one in result.outcomes] == [("skipped", 1), ("ok", 2)]
    assert [one.dropped["key"] for one in result.relaxed] == ["author"]
    assert len(result.hits) == 1


def test_a_bad_setting_is_one_line_on_the_command_line(
    owner_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    monkeypatch.setenv("SIGNALBOX_WEB_PROVIDER", "bing")
    assert run(["retrieve", "penguins"]) == BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        'signalbox: setting WEB_PROVIDER: there is no web provider "bing"; '
        'there are: "brave", "ddgs", "exa", "searxng:URL", "tavily"'
    ]


# The doctor


async def test_the_doctor_makes_no_search_that_is_paid_for():
    with ScriptedServer() as server:
        check = await doctor_sources._check_web(
            Settings(web_provider="tavily", web_api_key=KEY, web_base_url=server.root_url)
        )
    assert (check.ok, check.found) == (
        True,
        "tavily, WEB_API_KEY is set; no test search was made, because it may cost money",
    )
    assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "timeout_s", "ok", "found"),
    [
        (None, 30, True, "searxng, no key; a test search found 1 pages"),
        (Fault(status=403), 30, False, "add json to search.formats"),
        (Fault(delay_s=30), 0.3, False, "no answer within 0.3 s"),
    ],
)
async def test_the_doctor_tries_what_costs_nothing(fault: Fault | None, timeout_s: float, ok: bool, found: str):
    with ScriptedServer(faults=[fault], other=lambda _: searxng(PAGES["searxng"])) as server:
        provider = f"searxng:{server.root_url}"
        check = await doctor_sources._check_web(Settings(web_provider=provider, source_timeout_s=timeout_s))
    assert check.ok is ok
    assert found in check.found


async def test_the_doctor_names_the_setting_that_is_wrong():
    check = await doctor_sources._check_web(Settings(web_provider="exa"))
    assert (check.ok, check.found) == (False, "setting WEB_API_KEY is missing: exa needs one")


async def test_the_web_is_asked_before_there_is_any_collection(owner_url: str, service_url: str):
    with ScriptedServer(other=lambda _: tavily(NEWS)) as server:
        web = {"web_provider": "tavily", "web_api_key": KEY, "web_base_url": server.root_url}
        async with open_service(Settings(database_url=owner_url, service_url=service_url, **web)) as service:
            found = await service.retrieve(FRESH, sources=("web",))
            assert [hit.url for hit in found.hits] == [NEWS["url"]]
            with pytest.raises(BadRequest, match="no collection yet"):
                await service.retrieve(FRESH, sources=("web",), filter={"type": "eq", "key": "a", "value": "b"})
            with pytest.raises(BadRequest, match="no collection yet"):
                await service.retrieve(FRESH, sources=("web", "vector"))
