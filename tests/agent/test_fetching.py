"""`signalbox fetch`: the page as text, one line for what is refused, and the exit code of each."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent.serve.cli import run

PUBLIC = "93.184.215.14"
Ran = tuple[int, str, str]
PAGES = {
    "/oil": ("text/plain", "Oil the bearing.\x1b[2J"),
    "/html": ("text/html", "<title>Steps</title><meta name=date content=2024-03-01><h2>Open the lid</h2>"),
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content_type, body = PAGES.get(self.path, ("", ""))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", content_type)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What sockets connect to. "public.example" is at a public address, where a server on loopback answers."""
    connect = socket.socket.connect
    seen: list[object] = []
    names = {"public.example": PUBLIC, "inside.example": "127.0.0.1"}

    def getaddrinfo(host: str, port: int, *more: object, **options: object) -> list[object]:
        if host not in names:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (names[host], port))]

    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:

        def redirected(self: socket.socket, address: object) -> None:
            seen.append(address)
            connect(self, server.server_address if address == (PUBLIC, 80) else address)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(socket.socket, "connect", redirected)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield seen
        server.shutdown()
        thread.join()


@pytest.fixture
def signalbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Runs a command line without a database."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ran:
        code = run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_page_is_printed_as_text_and_what_is_known_of_it_beside(
    signalbox: Callable[..., Ran], connected: list[object]
):
    code, out, err = signalbox("fetch", "http://public.example/html")
    assert (code, out) == (0, "## Open the lid\n")
    assert err == "signalbox: Steps, 2024-03-01, http://public.example/html\n"
    assert connected == [(PUBLIC, 80)]


def test_a_page_cannot_drive_the_terminal(signalbox: Callable[..., Ran], connected: list[object]):
    assert signalbox("fetch", "http://public.example/oil")[1] == "Oil the bearing. [2J\n"


def test_with_json_there_is_one_document(signalbox: Callable[..., Ran], connected: list[object]):
    code, out, err = signalbox("fetch", "http://public.example/html", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "ok": True,
        "reason": "",
        "url": "http://public.example/html",
        "title": "Steps",
        "text": "## Open the lid",
        "published": "2024-03-01",
        "content_type": "text/html",
    }


def test_check_judges_and_does_not_connect(signalbox: Callable[..., Ran], connected: list[object]):
    url = "http://public.example/oil"
    assert signalbox("fetch", url, "--check") == (0, f"{url} ({PUBLIC})\n", "")
    code, out, _ = signalbox("fetch", url, "--check", "--json")
    assert (code, json.loads(out)) == (0, {"ok": True, "reason": "", "url": url, "addresses": [PUBLIC]})
    assert connected == []


@pytest.mark.parametrize("more", [[], ["--check"], ["--json"], ["--check", "--json"]])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1/", "the URL is refused: it is at 127.0.0.1, which is loopback"),
        ("http://inside.example/", "the URL is refused: inside.example is at 127.0.0.1, which is loopback"),
        ("http://public.example:22/", 'the URL is refused: the port "22" is not allowed; use 80 or 443'),
        ("", "the URL is refused: it is not of the form https://host/path"),
    ],
)
def test_a_refused_url_ends_with_2_and_one_line(
    url: str, reason: str, more: list[str], signalbox: Callable[..., Ran], connected: list[object]
):
    code, out, err = signalbox("fetch", url, *more)
    assert (code, err) == (2, f"signalbox: {reason}\n")
    if "--json" in more:
        assert json.loads(out) == {"ok": False, "reason": reason, "url": url}
    else:
        assert out == ""
    assert connected == []


def test_a_page_that_is_not_there_ends_with_3(signalbox: Callable[..., Ran], connected: list[object]):
    code, out, err = signalbox("fetch", "http://public.example/none")
    assert (code, out, err) == (3, "", "signalbox: public.example is unavailable: HTTP 404 Not Found\n")
    code, out, err = signalbox("fetch", "http://nowhere.example/", "--check")
    assert (code, out, err) == (3, "", "signalbox: nowhere.example is unavailable: its name cannot be resolved\n")
