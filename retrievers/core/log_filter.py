"""A log filter that drops most repetitions of a message, so that a lasting fault does not fill the log."""

import logging
import time

_SPARING_S = 10.0


class RepetitionFilter(logging.Filter):
    """Passes each message at most once every 10 s. Messages that differ only in inserted values count as the same."""

    def __init__(self) -> None:
        super().__init__()
        self._due_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        now_s = time.monotonic()
        if now_s < self._due_s.get(record.msg, now_s):
            return False
        self._due_s[record.msg] = now_s + _SPARING_S
        return True
