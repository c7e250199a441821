"""The guard's own tokenizer: scans a statement character by character before any parser sees it.

It deliberately accepts less than PostgreSQL: the parser that follows is not PostgreSQL's. Anything the two could
read differently is refused: comments, escapes, dollar quotes, letters that change under case folding. Linear time.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from retrievers.postgres.guard.allowlists import (
    BEFORE_BRACKET,
    FUNCTIONS,
    KEYWORDS,
    NEVER_NAMES,
    OPERATORS,
    REGEX_FUNCTIONS,
    TYPES,
)

Kind = Literal["word", "quoted", "string", "number", "operator", "mark"]

MAX_CHARACTERS = 8192
MAX_BYTES = 8192
MAX_DEPTH = 30
MAX_TOKENS = 2500
MAX_SERIES = 1000
MAX_GROWTH = 200
MAX_PATTERN = 100
# Maximum number of occurrences of a word or mark: with some of them, the parser's time grows exponentially.
MOST = {
    "join": 8, "union": 8, "intersect": 8, "except": 8, "[": 20, "select": 20, "case": 40, "lateral": 8, "with": 6,
    "not": 140, "values": 2, "||": 24, "generate_series": 1, "array": 40, "over": 30, "unnest": 20, "interval": 40,
    "exists": 20, "^": 2, "power": 3, "exp": 3, "concat": 8, "concat_ws": 8, "array_agg": 12, "array_cat": 8,
}  # fmt: skip

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)
    | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    | (?P<mark>::|[][(),.:;])
    """,
    re.VERBOSE,
)
_ENDS_OPERAND = frozenset({")", "]"})


class StatementRefused(Exception):
    """The statement is not accepted. The message says why."""


@dataclass(frozen=True, slots=True)
class SqlToken:
    """The characters [start, end) of a statement. `text` has words in lower case, and names and strings unquoted."""

    kind: Kind
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ScannedStatement:
    """A statement as tokens.

    Attributes:
        text: the statement without surrounding white space and without a final semicolon.
        partner: for the token index of each bracket, the index of the bracket that closes or opens it.
    """

    text: str
    tokens: tuple[SqlToken, ...]
    partner: dict[int, int]


def scan_statement(statement: str) -> ScannedStatement:
    """Split the statement into tokens and check them.

    Raises:
        Refused: it is too long, nested too deeply, or contains something that no question about documents needs.
    """
    if len(statement) > MAX_CHARACTERS or len(statement.encode(errors="replace")) > MAX_BYTES:
        raise StatementRefused(f"the statement is longer than {MAX_BYTES:,} bytes")
    for character in statement:
        if not character.isprintable() and character not in "\t\r\n":
            raise StatementRefused(f"the statement holds the character U+{ord(character):04X}")
    text = statement.strip(" \t\r\n")
    tokens = _tokens(text)
    if tokens and tokens[-1].text == ";" and tokens[-1].kind == "mark":
        text = text[: tokens[-1].start].rstrip(" \t\r\n")
        tokens = tokens[:-1]
    if not tokens:
        raise StatementRefused("the statement is empty")
    scanned = ScannedStatement(text, tuple(tokens), _brackets(tokens))
    _count(scanned)
    _check_neighbours(scanned)
    _check_calls(scanned)
    return scanned


def _tokens(text: str) -> list[SqlToken]:
    tokens: list[SqlToken] = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise StatementRefused(f"unexpected {text[place]!r}")
        kind, written = str(found.lastgroup), found[0]
        if kind == "operator":
            written = _operator(written)
        elif kind in ("word", "number"):
            _check_word(kind, written, text[found.end() : found.end() + 1])
        if kind != "space":
            meaning = {"string": written[1:-1].replace("''", "'"), "quoted": written[1:-1].replace('""', '"')}.get(
                kind, written.lower() if kind == "word" else written
            )
            tokens.append(SqlToken(kind, meaning, place, place + len(written)))  # type: ignore[arg-type]
        place += len(written)
        if len(tokens) > MAX_TOKENS:
            raise StatementRefused(f"the statement has more than {MAX_TOKENS:,} parts")
    return tokens


def _operator(run: str) -> str:
    """Return the operator at the start of a run of operator characters, by PostgreSQL's rule: "=-" -> "=".

    Raises Refused for a comment or an operator that is not allowed.
    """
    if "--" in run or "/*" in run or "*/" in run:
        raise StatementRefused("comments are not accepted")
    if len(run) > 8:
        raise StatementRefused("too many operators in a row")
    while len(run) > 1 and run[-1] in "+-" and not set(run) & set("~!@#%^&|`?"):
        run = run[:-1]
    if run not in OPERATORS:
        raise StatementRefused(f'the operator "{run}" is not accepted')
    return run


def _check_word(kind: str, written: str, following: str) -> None:
    if kind == "number":
        if following.isalnum() or following == "_" or len(written) > 400:
            raise StatementRefused(f"{written[:20]}{following} is not a number")
        exponent = re.search(r"[eE][+-]?(\d+)$", written)
        if exponent and (len(exponent[1]) > 3 or int(exponent[1]) > 330):
            raise StatementRefused(f"the number {written[:20]} is too large")
        return
    # A non-ASCII letter with upper and lower case may fold to an ASCII letter in one of the two programs.
    odd = next((one for one in written if ord(one) > 127 and unicodedata.category(one) != "Lo"), None)
    if odd is not None:
        raise StatementRefused(f'the letter "{odd}" is accepted in quotes only')
    if unicodedata.normalize("NFKC", written) != written:
        raise StatementRefused(f"the name {written} is not in Unicode normal form (NFKC)")


def _brackets(tokens: list[SqlToken]) -> dict[int, int]:
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in "([":
            opened.append(index)
            if len(opened) > MAX_DEPTH or sum(tokens[one].text == "[" for one in opened) > 3:
                raise StatementRefused("brackets are nested too deeply")
        elif token.text in ")]":
            if not opened or tokens[opened[-1]].text + token.text not in ("()", "[]"):
                raise StatementRefused("a closing bracket has no opening bracket")
            partner[index] = opened.pop()
            partner[partner[index]] = index
        elif token.text == ";":
            raise StatementRefused("more than one statement")
    if opened:
        raise StatementRefused("a bracket is not closed")
    return partner


def _count(scanned: ScannedStatement) -> None:
    counts: dict[str, int] = {}
    for token in scanned.tokens:
        if token.kind in ("word", "mark", "operator"):
            counts[token.text] = counts.get(token.text, 0) + 1
    for text, most in MOST.items():
        if counts.get(text, 0) > most:
            raise StatementRefused(f'"{text.upper()}" occurs more than {most} times')


def _check_neighbours(scanned: ScannedStatement) -> None:
    """Refuse strings, casts, [ and words whose neighbours could give them a meaning that is not allowed."""
    tokens = scanned.tokens
    if tokens[0].text not in ("select", "with", "("):
        raise StatementRefused("only a SELECT is accepted")
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if token.kind == "word" and token.text == "values" and (before is None or before.text != "("):
            raise StatementRefused("VALUES is accepted in brackets only")
        if token.kind == "word" and token.text in NEVER_NAMES:
            raise StatementRefused(f'"{token.text}" is not accepted')
        if token.kind in ("word", "quoted") and token.text.startswith("pg_"):
            raise StatementRefused(f'the name "{token.text}" is not accepted')
        if token.kind == "string" and before is not None:
            # This also refuses the prefixes E, B, X, N and U&, casts such as regclass 'x', and strings in two pieces.
            if before.kind in ("string", "quoted", "number") or before.text in _ENDS_OPERAND:
                raise StatementRefused(f"a string must not follow {before.text[:40]!r}")
            if before.kind == "word" and before.text not in KEYWORDS | TYPES:
                raise StatementRefused(f'a string must not follow "{before.text[:40]}"')
        if token.kind == "mark" and token.text == "[" and not _may_be_subscripted(before):
            raise StatementRefused("[ must follow ARRAY or the name of a list")
        if token.kind == "mark" and token.text == "::":
            after = tokens[index + 1] if index + 1 < len(tokens) else None
            if after is None or after.kind != "word" or after.text not in TYPES:
                raise StatementRefused(f'a cast to "{after.text if after else ""}" is not accepted')


def _may_be_subscripted(before: SqlToken | None) -> bool:
    if before is None:
        return False
    if before.kind == "word":
        return before.text == "array" or before.text not in KEYWORDS
    return before.kind == "quoted" or (before.kind == "mark" and before.text in _ENDS_OPERAND)


def _check_backslashes(scanned: ScannedStatement, patterns: frozenset[int]) -> None:
    """Check that backslashes occur only in patterns of LIKE or regular expressions, and never before a quote.

    Args:
        patterns: offsets in the statement at which patterns start.
    """
    for token in scanned.tokens:
        if "\\" in token.text and (token.start not in patterns or re.search(r"\\('|$|\\)", token.text)):
            raise StatementRefused("a backslash is accepted in the pattern of LIKE or of a regular expression only")


def _check_calls(scanned: ScannedStatement) -> None:
    """Check that every name before an opening bracket is an allowed function, or a table whose columns follow."""
    patterns: set[int] = set()
    for index, token in enumerate(scanned.tokens[1:], 1):
        before = scanned.tokens[index - 1]
        if token.text != "(" or token.kind != "mark" or before.kind not in ("word", "quoted"):
            continue
        earlier = scanned.tokens[index - 2] if index > 1 else None
        if before.kind == "word" and before.text in FUNCTIONS:
            if earlier is not None and earlier.text == "." and earlier.kind == "mark":
                raise StatementRefused(f'the call of "{before.text}" through a schema is not accepted')
            patterns |= _check_arguments(scanned, before.text, index)
        elif not (before.kind == "word" and before.text in BEFORE_BRACKET | TYPES) and not _names_columns(
            scanned, index
        ):
            raise StatementRefused(f'the function "{before.text}" is not accepted')
    _check_growth(scanned)
    for index, token in enumerate(scanned.tokens):
        following = scanned.tokens[index + 1 : index + 2]
        if token.kind == "operator" and token.text in ("~", "~*", "!~", "!~*"):
            patterns |= _check_pattern(following)
        if token.kind == "word" and token.text == "similar":
            patterns |= _check_pattern(scanned.tokens[index + 2 : index + 3])
        like = token.kind == "word" and token.text in ("like", "ilike")
        if like or (token.kind == "operator" and token.text in ("~~", "~~*", "!~~", "!~~*")):
            if following and following[0].kind == "string":
                patterns |= {following[0].start}
            if following and following[0].kind == "string" and following[0].text.count("%") > 8:
                raise StatementRefused("a LIKE pattern has more than 8 %")
    _check_backslashes(scanned, frozenset(patterns))


def _names_columns(scanned: ScannedStatement, opening: int) -> bool:
    """Return whether the bracket at token `opening` lists a table's columns: `AS t (a, b)`, `unnest(x) t (a)`."""
    tokens, closing = scanned.tokens, scanned.partner[opening]
    inside = tokens[opening + 1 : closing]
    names = all(one.kind in ("word", "quoted") for one in inside[::2])
    if not inside or not names or not all(one.text == "," for one in inside[1::2]) or len(inside) % 2 == 0:
        return False
    earlier = tokens[opening - 2] if opening > 1 else None
    if earlier is None:
        return False
    if earlier.kind == "word" and earlier.text in ("as", "ordinality"):
        return True
    if earlier.kind == "mark" and earlier.text == ")":
        # In DISTINCT ON (a) f (b), the second bracket belongs to a call.
        opened = scanned.partner[opening - 2]
        return tokens[opened - 1].text != "on"
    follows = tokens[closing + 1 : closing + 2]
    return earlier.text in ("with", ",") and bool(follows) and follows[0].text == "as"


def call_arguments(scanned: ScannedStatement, opening: int) -> list[tuple[SqlToken, ...]]:
    """Return the tokens of each argument in the brackets that token `opening` opens; [] for empty brackets."""
    found: list[tuple[SqlToken, ...]] = []
    index = start = opening + 1
    closing = scanned.partner[opening]
    while index < closing:
        token = scanned.tokens[index]
        if token.kind == "mark" and token.text in "([":
            index = scanned.partner[index]
        elif token.kind == "mark" and token.text == ",":
            found.append(scanned.tokens[start:index])
            start = index + 1
        index += 1
    return [*found, scanned.tokens[start:closing]] if closing > opening + 1 else []


def _check_arguments(scanned: ScannedStatement, name: str, opening: int) -> set[int]:
    """Check those arguments of the function `name` that determine its cost. Return the offsets of patterns in them."""
    given = call_arguments(scanned, opening)
    if name in REGEX_FUNCTIONS:
        return _check_pattern(given[1] if len(given) > 1 else ())
    if name == "generate_series":
        _check_series(given)
    elif name in ("repeat", "lpad", "rpad"):
        times = _whole(given[1]) if len(given) > 1 else None
        if times is None or times > MAX_GROWTH:
            raise StatementRefused(f"{name}() needs a number up to {MAX_GROWTH:,}")
    elif name == "format":
        if not given or len(given[0]) != 1 or given[0][0].kind != "string" or re.search(r"%[^sIL%]", given[0][0].text):
            raise StatementRefused("format() accepts %s as its only placeholder")
    elif name in ("substring", "substr"):
        # SUBSTRING(title FROM 'pattern') and SUBSTRING(title, 'pattern') take regular expressions.
        words = [token.text for part in given for token in part if token.kind == "word"]
        last = given[1] if len(given) > 1 else given[0][1:] if given else ()
        texts = [token for token in last if token.kind == "string"]
        if "similar" in words or texts:
            return set().union(*(_check_pattern((token,)) for token in texts or last[-1:]))
    return set()


def _check_growth(scanned: ScannedStatement) -> None:
    """Refuse a statement that could make a text too long, if all its calls such as repeat() were nested."""
    growth = 1
    for index, token in enumerate(scanned.tokens[:-1]):
        if token.kind != "word" or index + 1 not in scanned.partner or scanned.tokens[index + 1].text != "(":
            continue
        given = call_arguments(scanned, index + 1)
        if token.text in ("repeat", "lpad", "rpad") and len(given) > 1:
            growth *= max(_whole(given[1]) or 1, 1)
        elif token.text in ("replace", "regexp_replace", "array_to_string") and len(given) > 2:
            literal = len(given[2]) == 1 and given[2][0].kind == "string"
            growth *= max(len(given[2][0].text), 1) if literal else 50
    if growth > MAX_GROWTH:
        raise StatementRefused(f"texts may grow more than {MAX_GROWTH:,} times")


def _check_series(given: list[tuple[SqlToken, ...]]) -> None:
    """Check that the arguments of generate_series() are literals, as in (2000, 2025), and that the series is short."""
    bounds = [_whole(part) for part in given]
    if len(bounds) in (2, 3) and None not in bounds:
        first, last = bounds[0] or 0, bounds[1] or 0
        if abs(last - first) <= MAX_SERIES and (len(bounds) == 2 or bounds[2]):
            return
    step = given[2] if len(given) == 3 else ()
    days = [_day(part) for part in given[:2]]
    if step and None not in days and any(token.text == "interval" for token in step):
        text = next((token.text for token in step if token.kind == "string"), "")
        length = {"day": 1, "week": 7, "month": 30, "year": 365}
        unit = re.fullmatch(r"(\d{1,3}) (day|week|month|year)s?", text)
        if unit and int(unit[1]) and abs((days[1] or 0) - (days[0] or 0)) <= MAX_SERIES * length[unit[2]]:
            return
    raise StatementRefused(
        f"generate_series() needs two numbers at most {MAX_SERIES:,} apart, or two dates and an interval"
    )


def _day(part: tuple[SqlToken, ...]) -> int | None:
    """Return a day number for a literal date, from years of 365 and months of 30 days; None for anything else."""
    texts = [token.text for token in part if token.kind == "string"]
    others = {token.text for token in part if token.kind != "string"} - {"date", "timestamp", "::"}
    found = re.match(r"(\d{4})-(\d\d)-(\d\d)", texts[0]) if len(texts) == 1 and not others else None
    return int(found[1]) * 365 + int(found[2]) * 30 + int(found[3]) if found else None


def _whole(part: tuple[SqlToken, ...]) -> int | None:
    """Return the value of a literal integer with or without a minus; None for other tokens."""
    sign = 1
    if len(part) == 2 and part[0].text == "-":
        sign, part = -1, part[1:]
    if len(part) == 1 and part[0].kind == "number" and part[0].text.isdecimal() and len(part[0].text) <= 9:
        return sign * int(part[0].text)
    return None


def _check_pattern(part: tuple[SqlToken, ...]) -> set[int]:
    """Check that a regular expression is a short literal without nested repetition, so that it runs fast.

    Returns:
        A set with the offset in the statement at which the regular expression starts.
    """
    if len(part) != 1 or part[0].kind != "string" or not part[0].text:
        raise StatementRefused("a regular expression must be a text in quotes")
    pattern = part[0].text
    plain = re.sub(r"\\[dwsDWSmMyYAZ.()\[\]{}+*?|^$/_%-]", "c", pattern)
    plain = re.sub(r"\[\^?\]?[^]]*\]", "c", plain)
    if len(pattern) > MAX_PATTERN or len(re.findall(r"[*+]", plain)) > 4 or "\\" in plain:
        raise StatementRefused("the regular expression is too long, repeats too much or contains an unknown escape")
    if re.search(r"\)[*+{]|[{}]|\(\?|[*+?%][*+]|\*{3}", plain) or plain.count("(") > 8 or plain.count("%") > 4:
        raise StatementRefused("the regular expression repeats a group, has a repeat count, or may take too long")
    return {part[0].start}
