"""Read numbers kept as texts that identify something, such as shelf "0042"; a question must name their field."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agent.intent.language import lexicon
from agent.intent.language.text import Token

if TYPE_CHECKING:
    from agent.intent.values.vocabulary import Vocabulary

_FILLERS = frozenset('no nr number # . : = is 号 是 为 第 " “'.split())
"""Words that may stand between a field's name and a number."""
_LISTING = frozenset("and or nor , / & 、 ， 和 或 与 及".split())
TO = frozenset("to through until - – — ~ 到 至".split())
_MOST_FILLERS, _LONGEST_CUE = 3, 4
_LEVEL = re.compile(r"(?P<letters>[A-Za-z]{1,3}) ?(?P<number>[1-9]\d?)")


def numeric_code_names(held: Mapping[str, int], *, is_list: bool) -> Iterator[tuple[str, str, int]]:
    """Yield (name, value, documents) for the numbers in `held`, {value: documents}.

    If some begin with 0, "0042" has the name "0042", and also "42" if no other value is 42. "7" has the name "7" if the
    field holds lists, and "P2" the name "2" if the same letters stand before the number of every value.
    """
    codes = {value: documents for value, documents in held.items() if value.isdecimal() and value.isascii()}
    is_padded = any(len(code) > 1 and code.startswith("0") for code in codes)
    counts = Counter(map(int, codes))
    for code, documents in codes.items() if is_padded or is_list else ():
        yield code, code, documents
        if counts[int(code)] == 1 and str(int(code)) != code:
            yield str(int(code)), code, documents
    levels = {value: level for value in held if (level := _LEVEL.fullmatch(value)) is not None}
    if len(levels) == len(held) > 1 and len({level["letters"] for level in levels.values()}) == 1:
        for value, level in levels.items():
            yield level["number"], value, held[value]


def number_list_start(tokens: Sequence[Token], place: int) -> int:
    """Return the index of the first number in the list or range that ends at `place`: "[0007], 0012 and 0042"."""
    while place > 1 and tokens[place - 1].folded in _LISTING | TO and tokens[place - 2].kind == "number":
        place -= 2
    return place


def is_range_bound(tokens: Sequence[Token], place: int) -> bool:
    """Return whether the number at `place` is a bound of a range: "0007 to 0042"."""
    return any(
        0 <= other < len(tokens) and tokens[other].kind == "number" and tokens[between].folded in TO
        for between, other in ((place - 1, place - 2), (place + 1, place + 2))
    )


def fields_named_before(tokens: Sequence[Token], place: int, vocabulary: "Vocabulary") -> set[str]:
    """Return the fields named directly before the number at `place`, or before its list of numbers; empty if none is.

    Examples: "berths 0007 and [0042]", 架位[027] ("shelf 027").
    """
    end = place = number_list_start(tokens, place)
    while end and place - end < _MOST_FILLERS and tokens[end - 1].folded in _FILLERS:
        end -= 1
    for first in range(max(end - _LONGEST_CUE, 0), end):
        run = tokens[first:end]
        if any(token.kind == "mark" and token.text != "-" for token in run):
            continue
        words = tuple(token.folded for token in run if token.kind != "mark")
        alone = words[0] if len(words) == 1 and words[0] not in lexicon.STOP_WORDS else None
        named = vocabulary.cues.get(words, ()) if alone or len(words) > 1 else ()
        named = named or vocabulary.cues.get(("".join(words),), ()) if len(words) > 1 else named
        if named or (alone and (named := vocabulary.cues.get((run[0].stem,), ()))):
            return set(named)
    return set()
