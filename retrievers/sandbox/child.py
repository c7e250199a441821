"""The process that reads files: one after the other, each within the limits, until nobody asks for more.

Run as `python -m retrievers.sandbox.child LIMITS FOLDER` with a socket as standard input; the folder is its own for
temporary files, and goes with it. The process reaches no network and starts no other.
"""

import ctypes
import importlib
import json
import math
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.sandbox.frames import pack
from retrievers.sandbox.limits import EXIT_OUT_OF_MEMORY, PART_BYTES, Limits

Task = Callable[..., Iterator[dict[str, Any]]]
"""Reads a file: takes it open, and arguments; yields JSON objects, `{"read": BYTES}` among them for progress."""

_MOST_HEADER_BYTES = 1 << 20
_MOST_FILES = 64
_MOST_WRITTEN_BYTES = 64 << 20
_SENT_AT_ONCE_BYTES = 1 << 16
_MOST_KEPT_BYTES = 256 << 20
"""A process that holds more after a file ends itself: the memory goes back to the system. So does one that has used up
half of its address space, of which the next file, a good one, needs its part."""
_MOST_REASON_CHARACTERS = 1000
_NOT_COUNTED_BYTES = 256
"""Of each message: the names of its parts, which no file brings along."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.")


def main() -> None:
    """Read files until the other end of the socket is closed."""
    connection = socket.socket(fileno=os.dup(0))
    limits, folder = Limits(**json.loads(sys.argv[1])), sys.argv[2]
    confine(limits)
    is_last = False
    while not is_last and (given := receive_request(connection)) is not None:
        request, files = given
        for file, arguments in zip(files, request["arguments"], strict=True):
            if not is_last:
                with file:
                    is_last = Answer(connection, limits).send_all(request["task"], file, arguments)
    shutil.rmtree(folder, ignore_errors=True)  # whoever made it may be gone
    os._exit(0)  # no library gets a word in, whatever state it is in


def confine(limits: Limits) -> None:
    """Limit what this process can use and reach, for good; it starts no other."""
    limit_resources(limits)
    sys.addaudithook(_refuse)


def limit_resources(limits: Limits) -> None:
    """Limit the memory and the files of this process and of those that it starts, and take the network from them."""
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _MOST_WRITTEN_BYTES),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
    ):
        with suppress(ValueError, OSError):  # macOS has no limit of the address space
            resource.setrlimit(kind, (most, most))
    # An empty network of its own also stops libraries in C, which the hook below does not see; some systems refuse it.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWNET) != 0:
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _refuse(event: str, arguments: object) -> None:
    if event.startswith(_FORBIDDEN):
        raise PermissionError(event)


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[BinaryIO]] | None:
    """The next request, a line of JSON, and its files; None when there is none any more."""
    received, descriptors, _, _ = socket.recv_fds(connection, _MOST_HEADER_BYTES, _MOST_FILES)
    while received and not received.endswith(b"\n"):
        received += connection.recv(_MOST_HEADER_BYTES) or b"\n"
    if not received or not descriptors:
        return None
    return json.loads(received), [os.fdopen(descriptor, "rb") for descriptor in descriptors]


class Answer:
    """What is read from one file, sent in pieces of some size."""

    def __init__(self, connection: socket.socket, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._waiting = bytearray()
        self._read_bytes = self._made_bytes = 0

    def send_all(self, name: str, file: BinaryIO, arguments: dict[str, Any]) -> bool:
        """Carry out a task over a file, and say how it ended: with an `error` or without one.

        Returns:
            Whether this process must end, because it keeps too much memory.
        Raises:
            MemoryError: there is not enough. No library can be trusted after that.
        """
        limit_cpu(self._limits.cpu_s)
        error: str | None = None
        try:
            module, _, function = name.partition(":")
            task: Task = getattr(importlib.import_module(module), function)
            for message in task(file, **arguments):
                self._send(message)
        except BadDocument as problem:
            error = str(problem)
        except MemoryError:
            self._flush()
            raise
        except RecursionError:
            error = "it is nested too deeply"
        except Exception as problem:  # of a library, which may raise anything over files of strangers
            error = f"{type(problem).__name__}: {problem}"
        is_last = held_bytes() > _MOST_KEPT_BYTES or reserved_bytes() > self._limits.memory_bytes / 2
        self._waiting += pack({"error": error and error[:_MOST_REASON_CHARACTERS], "last": is_last})
        self._flush()
        return is_last

    def _send(self, message: dict[str, Any]) -> None:
        self._read_bytes += message.get("read", 0)
        if self._read_bytes >= PART_BYTES:
            self._read_bytes = self._made_bytes = 0
            limit_cpu(self._limits.cpu_s)
        packed = pack(message)
        self._made_bytes += max(len(packed) - _NOT_COUNTED_BYTES, 0)
        if self._made_bytes > self._limits.output_bytes:
            raise BadDocument(self._limits.too_much_output)
        self._waiting += packed
        if len(self._waiting) >= _SENT_AT_ONCE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._connection.sendall(self._waiting)
        self._waiting.clear()


def limit_cpu(seconds: int) -> None:
    """From now on, this process may use so much processor time; then the system ends it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def held_bytes() -> int:
    """Memory of this process; elsewhere than on Linux the most that it ever had."""
    try:
        return _pages()[1] * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reserved_bytes() -> int:
    """Address space of this process, which is what the next file has less of; 0 elsewhere than on Linux."""
    try:
        return _pages()[0] * resource.getpagesize()
    except OSError:
        return 0


def _pages() -> list[int]:
    """The memory of this process in pages: its address space, then what it holds of it."""
    with open("/proc/self/statm", "rb") as file:
        return [int(count) for count in file.read().split()]


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(EXIT_OUT_OF_MEMORY)
    except ConnectionError:  # whoever asked is gone
        os._exit(0)
