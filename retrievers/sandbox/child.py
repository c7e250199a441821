"""The process that reads files, one after the other, each within the limits, until the socket is closed.

Run as `python -m retrievers.sandbox.child LIMITS FOLDER` with a socket as standard input. LIMITS are those of
`ProcessLimits`, as JSON. FOLDER is for temporary files of this process only, and is removed at its end. The process
cannot use the network or start other processes.
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
from retrievers.sandbox.limits import EXIT_OUT_OF_MEMORY, PART_BYTES, ProcessLimits
from retrievers.sandbox.messages import encode_message

Task = Callable[..., Iterator[dict[str, Any]]]
"""Reads an open file, with arguments. Yields JSON objects; their key "read" tells how many bytes were read for each."""

_MOST_HEADER_BYTES = 1 << 20
_MOST_FILES = 64
_MOST_WRITTEN_BYTES = 64 << 20
_SENT_AT_ONCE_BYTES = 1 << 16
_MOST_KEPT_BYTES = 256 << 20
"""A process that has more resident memory than this after a file ends itself, to return the memory to the system. It
also ends itself if half of its address space is in use, because the rest may be too little for the next file.
"""
_MOST_REASON_CHARACTERS = 1000
_NOT_COUNTED_BYTES = 128
"""Bytes of each message that do not count as output: about its keys, the position and the id of a document. They are
limited by the number of messages.
"""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.")


def main() -> None:
    """Read files until the other end of the socket is closed."""
    connection = socket.socket(fileno=os.dup(0))
    limits, folder = ProcessLimits(**json.loads(sys.argv[1])), sys.argv[2]
    confine_process(limits)
    is_last = False
    while not is_last and (given := receive_request(connection)) is not None:
        request, files = given
        for file, arguments in zip(files, request["arguments"], strict=True):
            if not is_last:
                with file:
                    is_last = FileTask(connection, limits).run(request["task"], file, arguments)
    shutil.rmtree(folder, ignore_errors=True)  # in case the parent is gone and cannot remove it
    os._exit(0)  # exits without running any library's cleanup code


def confine_process(limits: ProcessLimits) -> None:
    """Permanently limit this process's memory, files and network, and forbid it to start other processes."""
    limit_resources(limits)
    sys.addaudithook(_refuse_forbidden)


def limit_resources(limits: ProcessLimits) -> None:
    """Limit memory and files of this process and of the processes that it starts, and cut them off from the network."""
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _MOST_WRITTEN_BYTES),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
    ):
        with suppress(ValueError, OSError):  # macOS cannot limit the address space
            resource.setrlimit(kind, (most, most))
    # An empty network namespace also stops C libraries, which bypass the audit hook below. Some systems refuse it.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWNET) != 0:
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _refuse_forbidden(event: str, arguments: object) -> None:
    if event.startswith(_FORBIDDEN):
        raise PermissionError(event)


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[BinaryIO]] | None:
    """Return the next request, received as a line of JSON, and its open files; None if the connection is closed."""
    received, descriptors, _, _ = socket.recv_fds(connection, _MOST_HEADER_BYTES, _MOST_FILES)
    while received and not received.endswith(b"\n"):
        received += connection.recv(_MOST_HEADER_BYTES) or b"\n"
    if not received or not descriptors:
        return None
    return json.loads(received), [os.fdopen(descriptor, "rb") for descriptor in descriptors]


class FileTask:
    """Runs a task on one file and sends its messages to the parent, several at a time."""

    def __init__(self, connection: socket.socket, limits: ProcessLimits) -> None:
        self._connection, self._limits = connection, limits
        self._waiting = bytearray()
        self._read_bytes = self._made_bytes = self._messages = 0

    def run(self, name: str, file: BinaryIO, arguments: dict[str, Any]) -> bool:
        """Run a task on a file and send its messages, then a last message: {"error": REASON, "last": RESULT}.

        REASON is None on success. RESULT is what this method returns.

        Args:
            name: the task, "module:function".
            arguments: the task's other arguments.
        Returns:
            Whether this process must end, because it uses too much memory.
        Raises:
            MemoryError: memory is exhausted. After that, libraries may no longer work correctly.
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
        except Exception as problem:  # a library may raise anything when it reads an untrusted file
            error = f"{type(problem).__name__}: {problem}"
        is_last = resident_bytes() > _MOST_KEPT_BYTES or address_space_bytes() > self._limits.memory_bytes / 2
        self._waiting += encode_message({"error": error and error[:_MOST_REASON_CHARACTERS], "last": is_last})
        self._flush()
        return is_last

    def _send(self, message: dict[str, Any]) -> None:
        self._read_bytes += message.get("read", 0)
        if self._read_bytes >= PART_BYTES:
            self._read_bytes = self._made_bytes = self._messages = 0
            limit_cpu(self._limits.cpu_s)
        packed = encode_message(message)
        self._messages += 1
        self._made_bytes += max(len(packed) - _NOT_COUNTED_BYTES, 0)
        if self._messages > self._limits.messages:
            raise BadDocument(self._limits.too_many_messages)
        if self._made_bytes > self._limits.output_bytes:
            raise BadDocument(self._limits.too_much_output)
        self._waiting += packed
        if len(self._waiting) >= _SENT_AT_ONCE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._connection.sendall(self._waiting)
        self._waiting.clear()


def limit_cpu(seconds: int) -> None:
    """Have the system kill this process when it has used this many more seconds of processor time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes. Outside Linux: the maximum so far."""
    try:
        return _memory_pages()[1] * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def address_space_bytes() -> int:
    """Return the address space that this process uses, in bytes; 0 outside Linux."""
    try:
        return _memory_pages()[0] * resource.getpagesize()
    except OSError:
        return 0


def _memory_pages() -> list[int]:
    """Return the numbers in `/proc/self/statm`, in memory pages: address space, resident memory and others."""
    with open("/proc/self/statm", "rb") as file:
        return [int(count) for count in file.read().split()]


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(EXIT_OUT_OF_MEMORY)
    except ConnectionError:  # the parent is gone
        os._exit(0)
