"""Who calls: about fifty bad credentials over a real socket, keys that end, and where a key is needed."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent.errors import BadSetting
from agent.serve.authentication import (
    Caller,
    Unauthenticated,
    anonymous_authenticator,
    open_authenticator,
    resolve_auth_mode,
)
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.core.errors import Unavailable
from retrievers.ingest.documents import Document
from retrievers.postgres.accounts.api_keys import FRESH_S


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, pool_size=4)) as service:
        yield service


@pytest.fixture
async def keyed(service: Service) -> AsyncIterator[str]:
    """The address of a service whose callers need a key; there is one, of nobody who matters."""
    await service.keys.create("somebody")
    async with run_server(create_app(service, authenticate=await open_authenticator(service, "keys"))) as port:
        yield f"http://127.0.0.1:{port}"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        value: dict[str, Any] = json.loads(self.body)
        return value


async def sent(address: str, *headers: bytes, path: bytes = b"/v1/collections") -> Answer:
    """The answer to a GET whose header lines are these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rsplit(":", 1)[1]))
    lines = [b"GET " + path + b" HTTP/1.1", b"Host: 127.0.0.1", b"Connection: close", *headers, b"", b""]
    writer.write(b"\r\n".join(lines))
    try:
        raw = await asyncio.wait_for(reader.read(), 120)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    return Answer(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)


def bearer(key: str | bytes) -> bytes:
    return b"Authorization: Bearer " + (key.encode() if isinstance(key, str) else key)


BAD: dict[str, Callable[[str], list[bytes]]] = {
    "no header": lambda key: [],
    "empty": lambda key: [b"Authorization:"],
    "blanks": lambda key: [b"Authorization:    "],
    "scheme alone": lambda key: [b"Authorization: Bearer"],
    "scheme and blanks": lambda key: [b"Authorization: Bearer    "],
    "no scheme": lambda key: [b"Authorization: " + key.encode()],
    "basic": lambda key: [b"Authorization: Basic " + key.encode()],
    "basic in base64": lambda key: [b"Authorization: Basic YWxhZGRpbjpvcGVuc2VzYW1l"],
    "digest": lambda key: [b'Authorization: Digest username="a", response="b"'],
    "token": lambda key: [b"Authorization: Token " + key.encode()],
    "negotiate": lambda key: [b"Authorization: Negotiate " + key.encode()],
    "scheme twice": lambda key: [b"Authorization: Bearer Bearer " + key.encode()],
    "no blank": lambda key: [b"Authorization: Bearer" + key.encode()],
    "colon": lambda key: [b"Authorization: Bearer: " + key.encode()],
    "equals": lambda key: [b"Authorization: Bearer=" + key.encode()],
    "tab": lambda key: [b"Authorization: Bearer\t" + key.encode()],
    "quoted": lambda key: [bearer(f'"{key}"')],
    "single quotes": lambda key: [bearer(f"'{key}'")],
    "two headers": lambda key: [bearer(key), bearer(key)],
    "a wrong header before": lambda key: [bearer("sbx_wrong"), bearer(key)],
    "a wrong header after": lambda key: [bearer(key), bearer("sbx_wrong")],
    "two keys": lambda key: [bearer(f"{key}, {key}")],
    "two keys with a blank": lambda key: [bearer(f"{key} {key}")],
    "more after the key": lambda key: [bearer(f"{key} realm=x")],
    "another header": lambda key: [b"X-API-Key: " + key.encode()],
    "proxy header": lambda key: [b"Proxy-Authorization: Bearer " + key.encode()],
    "cookie": lambda key: [b"Cookie: authorization=Bearer%20" + key.encode()],
    "word": lambda key: [bearer("secret")],
    "null": lambda key: [bearer("null")],
    "undefined": lambda key: [bearer("undefined")],
    "openai": lambda key: [bearer("sk-" + "a" * 48)],
    "jwt": lambda key: [bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhY21lIn0.")],
    "id alone": lambda key: [bearer(key[4:20])],
    "secret alone": lambda key: [bearer(key[21:])],
    "without its end": lambda key: [bearer(key[:-1])],
    "without its beginning": lambda key: [bearer(key[1:])],
    "one more character": lambda key: [bearer(key + "0")],
    "capitals": lambda key: [bearer(key.upper())],
    "percent-encoded": lambda key: [bearer(key.replace("_", "%5F"))],
    "unknown id": lambda key: [bearer(f"sbx_{'0' * 16}{key[20:]}")],
    "wrong secret": lambda key: [bearer(f"{key[:21]}{'0' * 64}{key[85:]}")],
    "wrong first digit": lambda key: [bearer(f"{key[:21]}{'1' if key[21] == '0' else '0'}{key[22:]}")],
    "wrong last digit": lambda key: [bearer(key[:-1] + ("1" if key[-1] == "0" else "0"))],
    "wildcard": lambda key: [bearer("%")],
    "sql": lambda key: [bearer("'/**/OR/**/1=1--")],
    "sql with blanks": lambda key: [bearer("' OR '1'='1")],
    "sql behind the id": lambda key: [bearer(f"{key[:20]}'--{key[23:]}")],
    "sql that sleeps": lambda key: [bearer("';SELECT/**/pg_sleep(10);--")],
    "placeholder": lambda key: [bearer("%s%(id)s$1")],
    "latin-1": lambda key: [bearer("schl\u00fcssel".encode("latin-1"))],
    "utf-8": lambda key: [bearer("密钥")],
    "bytes that are no utf-8": lambda key: [bearer(b"\xff\xfe" + key.encode())],
    "digits of another script": lambda key: [bearer("sbx_" + "\u0663" * 16 + key[20:])],
    "a control character": lambda key: [bearer(key.encode() + b"\x01")],
    "zero-width blank": lambda key: [bearer("\u200b" + key)],
    "long": lambda key: [bearer("a" * 10_000)],
    "long and nearly right": lambda key: [bearer(key + "0" * 10_000)],
    "many blanks": lambda key: [b"Authorization: Bearer " + b" " * 10_000 + key.encode()],
}
"""What a client may send instead of a key, made of a key that is right."""

NO_HEADER: dict[str, Callable[[str], list[bytes]]] = {
    "NUL": lambda key: [bearer(key.encode() + b"\0")],
    "a line of its own": lambda key: [b"Authorization Bearer " + key.encode()],
}
"""What is no header at all: refused before anybody reads it."""


async def test_bad_credentials_are_each_a_401_that_says_how_to_send_a_key(
    service: Service, keyed: str, owner_url: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    _, key = await service.keys.create("acme")
    expired, revoked = await service.keys.create("acme"), await service.keys.create("acme")
    await service.keys.revoke(revoked[0].id)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.api_key SET expires_at = now() WHERE id = %s", (expired[0].id,))
    ended = {"expired": lambda key: [bearer(expired[1])], "revoked": lambda key: [bearer(revoked[1])]}
    assert (await sent(keyed, bearer(key))).status == 200

    for name, headers in {**BAD, **ended}.items():
        answer = await sent(keyed, *headers(key))

        assert answer.status == 401, name
        assert answer.headers["www-authenticate"] == 'Bearer realm="signalbox"', name
        assert answer.problem["status"] == 401
        assert answer.problem["type"].endswith("unauthenticated")
        assert not any(part in answer.body.decode() for part in (key[21:33], key[-12:], "sleep", "密钥")), name
    for name, headers in NO_HEADER.items():
        assert (await sent(keyed, *headers(key))).status == 400, name
    # Larger than what is read at once, a header may be refused before it is complete.
    assert (await sent(keyed, bearer("a" * 100_000))).status in (400, 401)
    for one in (key, expired[1], revoked[1]):
        assert one[21:33] not in caplog.text


async def test_a_right_key_is_taken_as_the_standard_writes_it(service: Service, keyed: str):
    _, key = await service.keys.create("acme")
    for header in (
        bearer(key),
        b"authorization: bearer " + key.encode(),
        b"AUTHORIZATION: BEARER " + key.encode(),
        b"Authorization: Bearer    " + key.encode(),
        b"Authorization:Bearer " + key.encode(),
        bearer(key) + b"   ",
        bearer(key) + b"\t",
    ):
        assert (await sent(keyed, header)).status == 200, header


async def test_every_path_but_the_open_ones_needs_a_key(service: Service, keyed: str):
    async with httpx2.AsyncClient(base_url=keyed) as client:
        document = (await client.get("/openapi.json")).json()
    paths = [path for path in document["paths"] if path not in ("/", "/healthz", "/readyz", "/metrics")]
    assert len(paths) > 5
    for path in [*paths, "/v1/nothing", "/mcp", "/v1/../v1/collections"]:
        filled = path.replace("{", "").replace("}", "")
        assert (await sent(keyed, path=filled.encode())).status == 401, path


async def test_nothing_in_a_request_widens_or_changes_the_tenant_of_its_key(service: Service, keyed: str):
    await service.ingest([Document("a", "a", "a", "Penguins of acme.")], "docs", tenant="acme")
    await service.ingest([Document("b", "b", "b", "Penguins of globex.")], "docs", tenant="globex")
    _, key = await service.keys.create("acme")
    foreign, _ = await service.keys.create("globex")
    headers = {"Authorization": f"Bearer {key}"}
    others = {"X-Tenant": "globex", "X-Tenant-Id": "globex", "Tenant": "globex", "X-Forwarded-User": "globex"}
    others |= {"OpenAI-Organization": "globex", "OpenAI-Project": "globex", "X-Signalbox-Scope": "globex"}
    async with httpx2.AsyncClient(base_url=keyed, headers=headers) as client:
        plain = (await client.post("/v1/retrieve", json={"query": "penguins"})).json()
        assert [hit["document_id"] for hit in plain["hits"]] == ["a"]
        for more in (
            {"headers": others},
            {"params": {"tenant": "globex", "key": foreign.id}},
            {"headers": {"Cookie": "tenant=globex"}},
        ):
            answer = await client.post("/v1/retrieve", json={"query": "penguins"}, **more)  # type: ignore[arg-type]
            assert [hit["document_id"] for hit in answer.json()["hits"]] == ["a"]
        for body in ({"tenant": "globex"}, {"scope": "globex"}):
            assert (await client.post("/v1/retrieve", json={"query": "penguins", **body})).status_code == 422
        for filter in ({"type": "eq", "key": "tenant", "value": "globex"}, {"type": "eq", "key": "id", "value": "b"}):
            answer = await client.post("/v1/retrieve", json={"query": "penguins", "filter": filter})
            assert answer.status_code == 422 or answer.json()["hits"] == []
        for path in ("globex/docs/b", "docs/b", "docs/../globex/b", "docs%00/b", "globex:docs/b"):
            assert (await client.get(f"/v1/documents/{path}")).status_code in (404, 422)
        added = {"collection": "docs", "documents": [{"id": "c", "text": "Penguins.", "tenant": "globex"}]}
        assert (await client.post("/v1/documents", json=added)).json()["inserted"] == 1
    assert [one.documents for one in await service.collections(tenant="globex")] == [1]
    assert [one.documents for one in await service.collections(tenant="acme")] == [2]


async def test_a_revoked_key_stops_within_a_second_and_its_successor_works_under_load(service: Service, keyed: str):
    old, first = await service.keys.create("acme")
    using, stopped, failures = [first], asyncio.Event(), list[int]()
    sent_with: dict[int, str] = {}

    async def load(client: httpx2.AsyncClient, number: int) -> None:
        while not stopped.is_set():
            sent_with[number] = using[0]
            answer = await client.get("/v1/collections", headers={"Authorization": f"Bearer {using[0]}"})
            if answer.status_code != 200:
                failures.append(answer.status_code)

    async with httpx2.AsyncClient(base_url=keyed) as client:
        callers = [asyncio.create_task(load(client, number)) for number in range(4)]
        for _ in range(3):
            new, key = await service.keys.create("acme")
            using[0], gone = key, using[0]
            while gone in sent_with.values():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await service.keys.revoke(old.id)
            await asyncio.sleep(FRESH_S)
            assert (await client.get("/v1/collections", headers={"Authorization": f"Bearer {gone}"})).status_code == 401
            old = new
        stopped.set()
        await asyncio.gather(*callers)
    assert failures == []


async def test_a_key_that_is_revoked_while_its_request_is_still_being_sent_opens_nothing(service: Service, keyed: str):
    made, key = await service.keys.create("acme")

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"query":'
        await service.keys.revoke(made.id)
        await asyncio.sleep(FRESH_S)
        yield b'"penguins"}'

    async with httpx2.AsyncClient(base_url=keyed) as client:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        answer = await client.post("/v1/retrieve", content=slowly(), headers=headers)
    assert answer.status_code == 401
    assert answer.json()["detail"] == f"the key is refused: the key {made.id} has been revoked"


async def test_a_database_that_is_down_is_a_503_and_never_a_401(
    service: Service, keyed: str, monkeypatch: pytest.MonkeyPatch
):
    _, key = await service.keys.create("acme")

    async def down(*arguments: object, **options: object) -> None:
        raise Unavailable("the database", "connection refused", retry_after_s=2)

    monkeypatch.setattr(type(service.database.reads), "fetch_autocommit", down)
    answer = await sent(keyed, bearer(key))
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert answer.problem["detail"] == "the database is unavailable: connection refused"
    assert (await sent(keyed, bearer(key[:-1]))).status == 401


async def test_without_keys_every_caller_is_the_tenant_of_the_settings(service: Service):
    assert await open_authenticator(service, "off") is None
    authenticate = anonymous_authenticator("acme")
    for header in (None, "", "Bearer none", "Basic x", "Bearer " + "x" * 100_000):
        assert await authenticate(header) == Caller("acme", None, trusted=True)


async def test_who_calls_is_told_by_the_key_s_id_and_never_by_the_key(service: Service):
    made, key = await service.keys.create("acme")
    authenticate = await open_authenticator(service, "keys")
    assert authenticate is not None
    caller = await authenticate(f"Bearer {key}")
    assert caller == Caller("acme", made.id)
    assert key[21:33] not in repr(caller)
    with pytest.raises(Unauthenticated) as caught:
        await authenticate(f"Bearer {key[:-1]}")
    assert key[21:33] not in repr(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_on_loopback_no_key_is_needed_unless_it_is_asked_for(host: str):
    assert resolve_auth_mode(Settings(), host) == "off"
    assert resolve_auth_mode(Settings(auth="off"), host) == "off"
    assert resolve_auth_mode(Settings(auth="keys"), host) == "keys"


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.7", "example.org", "localhost.example.org", "10.127.0.1", "::ffff:8.8.8.8"]
)
def test_elsewhere_a_key_is_needed_and_cannot_be_done_without(host: str):
    assert resolve_auth_mode(Settings(), host) == "keys"
    assert resolve_auth_mode(Settings(auth="keys"), host) == "keys"
    with pytest.raises(BadSetting, match=r"AUTH=off is allowed only on loopback.*signalbox keys create --tenant T"):
        resolve_auth_mode(Settings(auth="off"), host)


async def test_where_a_key_is_needed_and_none_is_live_nothing_is_served(service: Service):
    refused = r"none exists: create one with `signalbox keys create --tenant T`"
    with pytest.raises(BadSetting, match=refused):
        await open_authenticator(service, "keys")
    made, _ = await service.keys.create("acme")
    assert await open_authenticator(service, "keys") is not None
    await service.keys.revoke(made.id)
    with pytest.raises(BadSetting, match=refused):
        await open_authenticator(service, "keys")


# The command line.


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Signalbox = Callable[..., Ran]


@pytest.fixture
def signalbox(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Signalbox:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)

    def call(*arguments: str) -> Ran:
        code = run(arguments)
        return Ran(code, *capsys.readouterr())

    return call


def test_a_key_is_printed_once_listed_without_its_secret_and_revoked(signalbox: Signalbox):
    made = signalbox("keys", "create", "--tenant", "acme", "--name", "front end", "--expires", "30")
    key = made.out.strip()
    assert (made.code, made.out.count("\n")) == (0, 1)
    id = key.split("_")[1]
    assert f"key {id} of tenant acme, valid until 20" in made.err
    assert key not in made.err
    second = json.loads(signalbox("keys", "create", "--tenant", "globex", "--json").out)
    assert second["key"].startswith(f"sbx_{second['id']}_")
    assert (second["tenant"], second["state"], second["expires_at"]) == ("globex", "live", None)

    listed = signalbox("keys", "list")
    assert [line.split()[:3] for line in listed.out.splitlines()] == [
        [id, "live", "acme"],
        [second["id"], "live", "globex"],
    ]
    of_one = json.loads(signalbox("keys", "list", "--tenant", "acme", "--json").out)
    assert [(one["id"], one["name"], one["state"]) for one in of_one] == [(id, "front end", "live")]
    for text in (listed.out, json.dumps(of_one)):
        assert key[21:] not in text
        assert "digest" not in text

    assert signalbox("keys", "revoke", id).out == f"key {id} of tenant acme is revoked\n"
    assert json.loads(signalbox("keys", "revoke", id, "--json").out)["state"] == "revoked"
    assert signalbox("keys", "list", "--tenant", "acme").out.split()[1] == "revoked"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create",), "Missing option '--tenant'"),
        (("create", "--tenant", ""), "a tenant is a name of 1 to 128 printable characters"),
        (("create", "--tenant", "acme", "--expires", "0"), "expires after more than 0"),
        (("create", "--tenant", "acme", "--expires", "soon"), "Invalid value for '--expires'"),
        (("create", "--tenant", "acme", "--name", "a\nb"), "at most 200 printable characters"),
        (("list", "--tenant", "a\nb"), "a tenant is a name"),
        (("revoke", "nothing"), "there is no key with that id; `signalbox keys list` shows all keys"),
        (("revoke",), "Missing argument 'ID'"),
        (("rotate",), "No such command 'rotate'"),
    ],
)
def test_a_slip_is_one_line_and_exit_code_2(signalbox: Signalbox, arguments: tuple[str, ...], said: str):
    ran = signalbox("keys", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_without_a_key_in_store_the_list_says_how_to_make_one(signalbox: Signalbox):
    assert signalbox("keys", "list").out == "no keys; make one with: signalbox keys create --tenant T\n"
    assert json.loads(signalbox("keys", "list", "--json").out) == []


def test_a_database_that_is_not_there_is_exit_code_3(signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", make_conninfo("", host="127.0.0.1", port="1", user="u", dbname="d"))
    for arguments in (("list",), ("create", "--tenant", "acme"), ("revoke", "x")):
        assert signalbox("keys", *arguments).code == 3


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--host", "0.0.0.0")])
def test_a_server_whose_callers_could_not_have_a_key_does_not_start(
    signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
):
    if not arguments:
        monkeypatch.setenv("SIGNALBOX_AUTH", "keys")
    monkeypatch.setenv("SIGNALBOX_PROCESSES", "1")
    ran = signalbox("serve", "--port", "0", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "create one with `signalbox keys create --tenant T`" in ran.err
    assert ran.err.count("\n") == 1


def test_a_server_that_asks_nobody_for_a_key_does_not_start_where_others_reach_it(
    signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SIGNALBOX_AUTH", "off")
    ran = signalbox("serve", "--port", "0", "--host", "0.0.0.0")
    assert ran.code == 2
    assert "AUTH=off is allowed only on loopback, and 0.0.0.0 is not" in ran.err
