"""Drive one adapter of `evals.peers` in an interpreter of its own. If it fails, only its own figures are lost."""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from retrievers.embed import Vectors

HOST = Path(__file__).parent / "peers" / "host.py"
START_S = 120.0
"""Maximum seconds to import a library."""
CALL_S = 60.0
"""Maximum seconds of a search."""
INGEST_S = 1800.0
_CLOSE_S = 10.0
_MOST_BYTES = 1 << 20
_TREE = Path(__file__).parents[1]


class PeerError(Exception):
    """The process died, did not answer in time, wrote something else than a reply, or could not carry out a call."""


class PeerMissing(PeerError):
    """The interpreter does not have the adapter's packages."""


class PeerQuestionError(PeerError):
    """The adapter raised on a question; the process answers the next one."""


class PeerProcess:
    """An async context manager that runs one adapter in a process of its own.

    Args:
        python: the interpreter.
        adapter: the adapter's file.
        own: whether the adapter imports this project, so that the process must find it.
    Attributes:
        packages: versions by distribution, as the interpreter has them.
    Raises:
        PeerMissing: on entering, if packages are missing.
        PeerError: on entering, if the interpreter does not start the adapter.
    """

    def __init__(self, python: Path, adapter: Path, *, own: bool = False) -> None:
        self._command = (str(python), str(HOST), str(adapter))
        self._environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if own:
            before = os.environ.get("PYTHONPATH")
            self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_TREE), before]))
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self.packages: Mapping[str, str] = {}

    async def __aenter__(self) -> Self:
        self._log = tempfile.TemporaryFile(prefix="signalbox-")  # noqa: SIM115 closed in __aexit__
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                env=self._environment,
                limit=_MOST_BYTES,
            )
            hello = await self._reply(START_S)
            if "missing" in hello:
                raise PeerMissing(str(hello["missing"]))
            self.packages = self._value(hello, "packages", dict)
        except OSError as error:
            await self.__aexit__(None, None, None)
            raise PeerError(f"{self._command[0]} cannot be started: {error.strerror}") from error
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._log is not None:
            self._log.close()

    async def stop(self) -> None:
        """Kill the process; does nothing if it has ended."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def connect(self, *, timeout_s: float = CALL_S, **given: Any) -> None:
        """Connect to the database and create the tables.

        Args:
            given: the arguments of the adapter's `connect`, see `evals.peers.host`.
        Raises:
            PeerError: it could not be done.
        """
        await self._call(timeout_s, call="connect", **given)

    async def ingest(self, passages: Path, *, timeout_s: float = INGEST_S) -> float:
        """Store the passages of a file; return the seconds it took.

        Raises:
            PeerError: it could not be done.
        """
        reply = await self._call(timeout_s, call="ingest", passages=str(passages))
        return float(self._value(reply, "seconds", int, float))

    async def search(
        self, text: str, vector: Vectors | None, limit: int, *, timeout_s: float = CALL_S
    ) -> tuple[list[str], float]:
        """Return the documents of the best passages, each once, and the milliseconds that the search took.

        Raises:
            PeerQuestionError: this question failed.
            PeerError: the process cannot be used any longer.
        """
        reply = await self._call(timeout_s, call="search", text=text, vector=_encoded(vector), limit=limit)
        found, took_ms = self._value(reply, "found", list), self._value(reply, "ms", int, float)
        return list(dict.fromkeys(map(str, found))), float(took_ms)

    async def throughput(
        self, questions: Sequence[tuple[str, Vectors | None]], clients: int, limit: int, *, timeout_s: float = INGEST_S
    ) -> tuple[float, int]:
        """Ask all questions from a number of clients; return the seconds it took and the number of failed questions.

        Raises:
            PeerError: the process cannot be used any longer.
        """
        encoded = [(text, _encoded(vector)) for text, vector in questions]
        reply = await self._call(timeout_s, call="throughput", questions=encoded, clients=clients, limit=limit)
        return float(self._value(reply, "seconds", int, float)), int(self._value(reply, "failed", int))

    async def close(self) -> float:
        """Close the adapter; return the largest resident size of the process, in MB.

        Raises:
            PeerError: it did not close.
        """
        return float(self._value(await self._call(CALL_S, call="close"), "peak_rss_mb", int, float))

    async def _call(self, timeout_s: float, **request: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            raise PeerError(await self._ending()) from error
        reply = await self._reply(timeout_s)
        if "error" in reply:
            kind = PeerQuestionError if request["call"] == "search" else PeerError
            raise kind(str(reply["error"])[:300])
        return reply

    async def _reply(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise PeerError(f"no answer after {timeout_s:g} s") from None
        except ValueError:
            raise PeerError(f"it wrote a line of more than {_MOST_BYTES:,} bytes") from None
        if not line:
            raise PeerError(await self._ending())
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or not reply.keys() & {"ok", "error", "missing"}:
            raise PeerError(f"it wrote {line[:80]!r} in place of a reply")
        return reply

    def _value(self, reply: Mapping[str, Any], key: str, *kinds: type) -> Any:
        content = reply.get("ok")
        value = content.get(key) if isinstance(content, dict) else None
        if not isinstance(value, kinds):
            raise PeerError(f'its reply has no "{key}"')
        return value

    async def _ending(self) -> str:
        """Return how the process ended, with the last line that it wrote to stderr."""
        assert self._process is not None
        assert self._log is not None
        try:
            async with asyncio.timeout(_CLOSE_S):
                code = await self._process.wait()
        except TimeoutError:
            return "it closed its output"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"it ended with code {code}" + (f": {lines[-1][:200]}" if lines else "")


@asynccontextmanager
async def first_peer(pythons: Sequence[Path], adapter: Path) -> AsyncIterator[PeerProcess]:
    """Run an adapter in the first interpreter that can import it.

    Raises:
        PeerError: none can; the reasons are joined.
    """
    reasons = []
    async with AsyncExitStack() as stack:
        for python in pythons:
            try:
                process = await stack.enter_async_context(PeerProcess(python, adapter))
            except PeerMissing as error:
                reasons.append(f"not installed ({error})")
            except PeerError as error:
                reasons.append(str(error))
            else:
                yield process
                return
    raise PeerError("; ".join(dict.fromkeys(reasons)))


def encoded(vector: Vectors) -> str:
    """Return a vector as base64 of little-endian 32-bit floats."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _encoded(vector: Vectors | None) -> str | None:
    return None if vector is None else encoded(vector)
