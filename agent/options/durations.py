"""Durations as written in the settings file and in options of commands, such as 15m."""

import re

from retrievers.ingest.readers.text_cleaning import plain_line

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FORM = re.compile(r"([1-9][0-9]{0,5})([smhd])")


def read_duration(text: str) -> float:
    """Return a duration in seconds: "15m" -> 900. The text is a whole number above 0 with a unit: s, m, h or d.

    Raises:
        ValueError: the text has another form; the message quotes it.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f'"{plain_line(text, 20)}" is not a duration; write it as 30s, 15m, 2h or 1d')
    return float(int(found[1]) * _UNITS_S[found[2]])
