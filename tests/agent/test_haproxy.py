"""Two `signalbox serve` on two addresses behind HAProxy: one is killed under traffic."""

import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from agent.serve.process.listening_socket import open_listener

HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_CONFIGURATION = """
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout check 5s
    option redispatch
    retries 3
frontend questions
    bind 127.0.0.1:{port}
    default_backend signalbox
frontend watch
    bind 127.0.0.1:{watched}
    monitor-uri /readyz
    monitor fail if {{ nbsrv(signalbox) lt 2 }}
backend signalbox
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    default-server check inter 1s fall 5 rise 1
    server one {one}
    server two {two}
"""


def free_port() -> int:
    with open_listener("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def serve(host: str, owner_url: str, service_url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that serves at the address; its first line tells the port."""
    command = [sys.executable, "-c", "from agent.serve.cli import main; main()", "serve", "--host", host, "--port", "0"]
    named = {"DATABASE_URL": owner_url, "SERVICE_URL": service_url, "PROCESSES": "1", "LOG_LEVEL": "warning"}
    environment = os.environ | {f"SIGNALBOX_{name}": value for name, value in named.items()}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = process.stderr.readline()
    address = re.search(r"127\.0\.0\.\d:\d+", said)
    assert address, said
    return address[0]


def ask(address: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", "/v1/retrieve", '{"query": "turbine"}', {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def until_ready(address: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
        assert time.monotonic() < deadline, f"{address} does not get ready"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy (Debian's package of that name)")
def test_of_two_that_serve_one_is_killed_and_no_other_question_is_lost(
    owner_url: str, service_url: str, tmp_path: Path
):
    """What may fail is what the killed process was at: no question that began when it was gone."""
    with ExitStack() as stack:
        # At once: most of the time is that of Python's imports.
        opening = [stack.enter_context(serve(host, owner_url, service_url)) for host in ("127.0.0.1", "127.0.0.2")]
        victim = opening[0]
        one, two = map(address_of, opening)
        until_ready(one)
        with closing(http.client.HTTPConnection(one, timeout=60)) as connection:
            body = '{"collection": "docs", "documents": [{"id": "a", "text": "A turbine."}]}'
            connection.request("POST", "/v1/documents", body, {"Content-Type": "application/json"})
            assert connection.getresponse().status == 200

        port, watched = free_port(), free_port()
        text = _CONFIGURATION.format(port=port, watched=watched, one=one, two=two)
        (tmp_path / "haproxy.cfg").write_text(text)
        assert HAPROXY is not None
        balancer = subprocess.Popen([HAPROXY, "-db", "-f", str(tmp_path / "haproxy.cfg")])
        stack.callback(balancer.wait)
        stack.callback(balancer.kill)
        time.sleep(0.2)
        assert balancer.poll() is None, "haproxy does not take its configuration"
        until_ready(f"127.0.0.1:{watched}")  # both are

        answered: list[list[tuple[float, float, int]]] = [[] for _ in range(3)]
        """When each question began, when its answer was there, and the status."""
        over = threading.Event()

        def asker(answers: list[tuple[float, float, int]]) -> None:
            while not over.is_set():
                began = time.monotonic()
                try:
                    status = ask(f"127.0.0.1:{port}")[0]
                except (OSError, http.client.HTTPException):
                    status = 0
                answers.append((began, time.monotonic(), status))

        askers = [threading.Thread(target=asker, args=(answers,)) for answers in answered]
        for thread in askers:
            thread.start()
        try:
            wait_for(lambda: sum(map(len, answered)) >= 20)
            killed = time.monotonic()
            victim.kill()
            victim.wait()
            gone = time.monotonic()
            at = [len(answers) for answers in answered]
            wait_for(lambda: all(len(answers) >= n + 10 for answers, n in zip(answered, at, strict=True)))
        finally:
            over.set()
            for thread in askers:
                thread.join()

    for answers in answered:
        lost = [(began, ended) for began, ended, status in answers if status != 200]
        assert all(began < gone and ended > killed for began, ended in lost), (lost, killed, gone)
    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT count(*) FROM signalbox.document").fetchone() == (1,)


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
