"""Serve one adapter in an interpreter of its own: a JSON request per line on stdin, a JSON reply per line on stdout.

    PYTHON host.py ADAPTER.py

Only the standard library is imported here, so that the interpreter needs no package but the adapter's. An adapter is a
module with these names:

    PACKAGES: names of its distributions, of which the versions are reported
    async connect(*, database, dimension, depth, language, connections, options) -> searcher
    async ingest(searcher, batches)
    async search(searcher, text, vector, limit) -> ids of the documents of the passages found, best first
    async close(searcher)

`connect` creates empty tables; its time is not measured. `database` is a dict with dbname and what is known of host,
port, user and password; `batches` are lists of `PeerPassage`; `depth` is the number of passages that each of its
searches contributes; `language` is a text search configuration of PostgreSQL.

Replies are {"ok": ...} or {"error": reason}. The first line is {"ok": {"packages": ...}}, or {"missing": reason} if the
adapter cannot be imported. Times are measured here, so that they exclude the time in the pipe.
"""

import asyncio
import base64
import importlib.util
import json
import os
import resource
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

_BATCH = 200


class PeerPassage(NamedTuple):
    """One passage to store; `key` is the digest of the text that was embedded, `vector` has length 1."""

    document: str
    text: str
    key: str
    vector: list[float]
    metadata: dict[str, Any]


class _Batches:
    """The passages of a file in lists; `reading_s` is the time spent on reading, which is not the adapter's work."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.count = 0
        self.reading_s = 0.0

    def __iter__(self) -> Iterator[list[PeerPassage]]:
        batch: list[PeerPassage] = []
        started = time.perf_counter()
        with open(self._path, encoding="utf-8") as file:
            for line in file:
                batch.append(_passage(json.loads(line)))
                if len(batch) == _BATCH:
                    self.reading_s += time.perf_counter() - started
                    self.count += len(batch)
                    yield batch
                    batch, started = [], time.perf_counter()
        self.reading_s += time.perf_counter() - started
        if batch:
            self.count += len(batch)
            yield batch


def _passage(line: dict[str, Any]) -> PeerPassage:
    return PeerPassage(line["document"], line["text"], line["key"], _floats(line["vector"]), line.get("metadata", {}))


def _floats(encoded: str) -> list[float]:
    """Return the numbers of little-endian 32-bit floats in base64."""
    numbers = array("f", base64.b64decode(encoded))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


class Host:
    """Carries out requests with an adapter.

    Args:
        adapter: a module as described at the top of this file.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._searcher: Any = None

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request and return the content of its reply.

        Args:
            request: {"call": name, ...the arguments}; the name is removed.
        Raises:
            Exception: whatever the adapter raises; ValueError for an unknown call.
        """
        call = request.pop("call")
        if call == "connect":
            self._searcher = await self._adapter.connect(**request)
            return {}
        if call == "ingest":
            return await self._ingest(request["passages"])
        if call == "search":
            return await self._search(request["text"], _vector(request["vector"]), request["limit"])
        if call == "throughput":
            questions = [(text, _vector(encoded)) for text, encoded in request["questions"]]
            return await self._throughput(questions, request["clients"], request["limit"])
        if call == "close":
            await self._adapter.close(self._searcher)
            return {"peak_rss_mb": round(peak_rss_mb(), 1)}
        raise ValueError(f"unknown call {call}")

    async def _ingest(self, passages: str) -> dict[str, Any]:
        batches = _Batches(passages)
        started = time.perf_counter()
        await self._adapter.ingest(self._searcher, batches)
        seconds = time.perf_counter() - started - batches.reading_s
        return {"passages": batches.count, "seconds": seconds}

    async def _search(self, text: str, vector: list[float] | None, limit: int) -> dict[str, Any]:
        started = time.perf_counter()
        found = await self._adapter.search(self._searcher, text, vector, limit)
        return {"found": found, "ms": (time.perf_counter() - started) * 1000}

    async def _throughput(
        self, questions: Iterable[tuple[str, list[float] | None]], clients: int, limit: int
    ) -> dict[str, Any]:
        """Ask all questions from `clients` callers, each without a pause; a question that fails is counted."""
        waiting, failed = iter(list(questions)), 0

        async def client() -> None:
            nonlocal failed
            for text, vector in waiting:
                try:
                    await self._adapter.search(self._searcher, text, vector, limit)
                except Exception:
                    failed += 1

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return {"seconds": time.perf_counter() - started, "failed": failed}


def _vector(encoded: str | None) -> list[float] | None:
    return None if encoded is None else _floats(encoded)


def peak_rss_mb() -> float:
    """Return the largest resident size of this process so far, in MB."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            # ru_maxrss would be that of the process that started this one, if that was larger.
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024 / 1e6
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (most if sys.platform == "darwin" else most * 1024) / 1e6


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


async def _serve(path: str, replies: Any) -> None:
    def reply(content: dict[str, Any]) -> None:
        replies.write(json.dumps(content) + "\n")
        replies.flush()

    try:
        adapter = _load(path)
    except ImportError as error:
        reply({"missing": str(error)})
        return
    reply({"ok": {"packages": _versions(adapter.PACKAGES)}})
    host = Host(adapter)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        last = request.get("call") == "close"
        try:
            reply({"ok": await host.answer(request)})
        except Exception as error:
            lines = str(error).strip().splitlines()
            reply({"error": f"{type(error).__name__}: {lines[0][:300] if lines else ''}"})
        if last:
            return


def main() -> None:
    """Serve the adapter in the file that the first argument names."""
    # The output of libraries goes to stderr, because on stdout it would get between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(_serve(sys.argv[1], replies))


if __name__ == "__main__":
    main()
