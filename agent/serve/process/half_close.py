"""Close a connection without resetting it."""

import asyncio
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
