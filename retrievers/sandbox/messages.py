"""Messages that the processes that read files send to the service: each is its length, then JSON, over a socket."""

import json
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("!I")


def encode_message(message: Any) -> bytes:
    """Encode a message. Unpaired surrogates become question marks."""
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    return _LENGTH.pack(len(data)) + data


class MessageReceiver:
    """Reads messages from a socket with a timeout. After a timeout, the next call continues with the same message.

    The messages come from a process that a hostile file may control.

    Args:
        most_bytes: maximum size of one message.
    """

    def __init__(self, connection: socket.socket, most_bytes: int) -> None:
        self._connection, self._most_bytes = connection, most_bytes
        self._received = bytearray()

    def receive(self, within_s: float) -> Any:
        """Return the next message.

        Args:
            within_s: how long to wait for the whole message, in seconds. The socket's timeout may come on top of it.
        Raises:
            TimeoutError: no complete message arrived in this time.
            EOFError: the other end is closed.
            ValueError: the message is invalid or too long.
        """
        until = time.monotonic() + within_s
        while True:
            head = self._received
            if len(head) >= _LENGTH.size:
                size = _LENGTH.unpack_from(head)[0]
                if size > self._most_bytes:
                    raise ValueError(f"a message of {size:,} bytes")
                end = _LENGTH.size + size
                if len(head) >= end:
                    message = bytes(head[_LENGTH.size : end])
                    del head[:end]
                    return json.loads(message)
            if time.monotonic() > until:
                raise TimeoutError
            try:
                piece = self._connection.recv(1 << 18)
            except ConnectionError:
                piece = b""
            if not piece:
                raise EOFError
            head += piece
