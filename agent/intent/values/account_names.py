"""Recognise account names such as `jdoe` or `ana-d`, and find the given names and surnames in them."""

import re
from collections.abc import Collection, Iterator

from agent.intent.language.text import stem
from agent.intent.words import word_frequencies

EMAIL = re.compile(r"(?P<local>[\w.+-]+)@[\w.-]+\.\w+")
SEPARATORS = re.compile(r"[._+-]")
"""Marks between the parts of an account name."""
_INITIAL_FIRST = re.compile(r"@?(?P<initial>[a-z])[-._]?(?P<surname>[a-z]{3,})\d{0,3}")
_INITIAL_LAST = re.compile(r"@?(?P<given>[a-z]{2,})[-._][a-z]\d{0,3}")
_BOTH = re.compile(r"@?(?P<given>[a-z]{2,})[-._](?P<surname>[a-z]{2,})\d{0,3}")
_DOTTED = re.compile(r"(?P<initial>[a-z])\.(?P<surname>[a-z]{2,})\d{0,3}")
_SHAPES = (_DOTTED, _INITIAL_FIRST, _INITIAL_LAST, _BOTH)
_SEPARATED = re.compile(r"@[\w.-]+|[a-z][-._][a-z]{3,}\d{0,3}|[a-z]{2,}[-._][a-z]\d{0,3}")
_LEAST_SHARE = 0.7
"""Minimum share of account names among the values of a field that holds accounts."""
_FEW = 3
"""Minimum number of values at which accounts whose surname is an ordinary word count: a.stone, s.may, r.price."""
_SHORTEST = 4
"""Minimum letters of a given name that the initial of a surname follows: `grace` in `gracew`."""


def is_email(text: str) -> bool:
    """Return whether a text is an e-mail address."""
    return EMAIL.fullmatch(text) is not None


def are_account_names(texts: Collection[str]) -> bool:
    """Return whether at least 70 % of the texts are account names; False for fewer than two texts."""
    dotted = {text: found["surname"] for text in texts if (found := _DOTTED.fullmatch(text)) is not None}
    if len(texts) < _FEW or len(set(dotted.values())) < _LEAST_SHARE * len(dotted):
        dotted = {}  # a surname that repeats is not a surname: t.test, f.test
    return len(texts) > 1 and sum(text in dotted or is_account_name(text) for text in texts) >= _LEAST_SHARE * len(
        texts
    )


def is_account_name(text: str) -> bool:
    """Return whether a text is written like an account name and is no ordinary phrase: jdoe, @ana-d, jo.lee."""
    parts = re.findall(r"[a-z]{3,}", text)
    is_plain = bool(parts) and all(stem(part) in word_frequencies() for part in parts)
    return not is_plain and any(shape.fullmatch(text) for shape in _SHAPES)


def is_marked_account(text: str) -> bool:
    """Return whether marks show that a text is an account name: a leading @, or one beside an initial (`m-smith`)."""
    return _SEPARATED.fullmatch(text) is not None


def initial_of(text: str) -> str:
    """Return the initial at the start of an account name, "j" for jdoe; "" if there is none."""
    found = _INITIAL_FIRST.fullmatch(text)
    return found["initial"] if found is not None else ""


def person_names_in(text: str) -> Iterator[str]:
    """Yield the given names and surnames that an account name may contain: "doe" for jdoe; nothing for another text."""
    for shape in _SHAPES:
        found = shape.fullmatch(text)
        yield from (part for name in ("given", "surname") if found and (part := found.groupdict().get(name)))
    given = text.rstrip("0123456789")[:-1]
    if _INITIAL_FIRST.fullmatch(text) and not is_marked_account(text) and len(given) >= _SHORTEST:
        yield given


def account_name_parts(values: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield ((name,), value) for each name in an account name among a field's values: (("doe",), "jdoe").

    If the field does not hold accounts as a whole, only values with a mark count, see `is_marked_account`.
    """
    are_accounts = are_account_names(values)
    for value in values:
        if are_accounts or (is_marked_account(value) and is_account_name(value)):
            yield from (((part,), value) for part in person_names_in(value))
