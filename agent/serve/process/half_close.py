"""Close a connection without resetting it."""

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

LINGER_S = 1.0


class HalfCloseTransport:
    """A transport that closes in two steps (RFC 9112 section 9.6): end writing, then read until the client closes.

    Closing a socket with unread bytes resets it, and the client loses the answer it has not read yet. The protocol
    ignores bytes that arrive after `close`. A client that does not close is cut off after `LINGER_S`.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_ending = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """See asyncio; true from the first step on."""
        return self._is_ending or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """See asyncio; writes nothing after `close`."""
        if not self._is_ending:
            self._transport.write(data)

    def close(self) -> None:
        """End writing, and close the transport later; see asyncio."""
        if not self.is_closing():
            self._close_after(self._transport.write_eof)

    def close_unless_unread(self) -> bool:
        """Close an idle connection, unless bytes have arrived that the event loop has not read yet.

        Returns:
            Whether the connection is closing.
        """
        if self.is_closing():
            return True
        descriptor = self._transport.get_extra_info("socket").fileno()
        arrived = select.poll()  # unlike `select.select`, it takes any descriptor number
        arrived.register(descriptor, select.POLLIN)
        if arrived.poll(0):
            return False
        if self._transport.get_write_buffer_size():
            self.close()
        else:
            # Not `write_eof`: uvloop ends writing in its next round, and a request could arrive until then.
            self._close_after(partial(_end_writing, descriptor))
        return True

    def _close_after(self, end_writing: Callable[[], None]) -> None:
        self._is_ending = True
        try:
            end_writing()
            self._transport.resume_reading()
        except OSError:  # the client is gone
            self._transport.close()
        else:
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)


def _end_writing(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        connection.shutdown(socket.SHUT_WR)
    finally:
        connection.detach()
