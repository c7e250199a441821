"""Closing a connection without resetting it."""

import asyncio
from typing import Any

LINGER_S = 1.0


class Lingering:
    """A transport that closes in two steps, as RFC 9112 section 9.6 asks: end writing, then read until the client ends.

    A socket that is closed with unread bytes, or that gets some later, is reset, and an answer that the client has not
    read yet is lost. What comes after `close` is the protocol's to ignore; a client that does not end is cut off after
    `LINGER_S`.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_ending = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._is_ending or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """See asyncio; after `close` nothing is written."""
        if not self._is_ending:
            self._transport.write(data)

    def close(self) -> None:
        """See asyncio."""
        if self.is_closing():
            return
        self._is_ending = True
        try:
            self._transport.write_eof()
            self._transport.resume_reading()
        except OSError:  # the client is gone
            self._transport.close()
        else:
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)
