"""The guard of the SQL source: judges an untrusted statement without running it.

It scans the text (`lexer`), parses it with sqlglot, and checks every node, name and function in its scope
against allow-lists (`resolver`, `nodes`). The text that runs is the original with a LIMIT, because
printing the parsed tree changes the meaning of some statements. PostgreSQL's own permissions are the second barrier
(`sql.execution`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from retrievers.postgres.guard.allowlists import FUNCTIONS, KEYWORDS, TYPES, UNITS
from retrievers.postgres.guard.lexer import ScannedStatement, StatementRefused, scan_statement
from retrievers.postgres.guard.resolver import NameResolver

MAX_ROWS = 1000
_LOG = logging.getLogger(__name__)
_DIALECT = Postgres()
# Parsing takes about 6 steps per token. If the parser backtracks, the steps grow exponentially.
_STEPS_PER_TOKEN = 60
_LEAST_STEPS = 5000


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """Whether a statement may run (`ok`), and in which form.

    Attributes:
        reason: why the statement may not run, in one line; "" if it may.
        sql: the statement to run: the original with a LIMIT of at most 1,000 rows. None if it may not run.
    """

    ok: bool
    reason: str = ""
    sql: str | None = None


def judge_statement(statement: str, columns: Mapping[str, str]) -> GuardVerdict:
    """Judge a statement over the view `documents`. Takes milliseconds, never more than a second.

    Args:
        statement: any text. What is not an acceptable statement is refused.
        columns: the view's columns, name to type.
    """
    try:
        scanned = scan_statement(statement)
        tree = _parse(scanned)
        _check_words(scanned, tree)
        resolver = NameResolver(frozenset(columns))
        resolver.query(tree, None, {})
        if not resolver.views:
            raise StatementRefused('the statement must read "documents"')
        return GuardVerdict(True, sql=_limited(scanned, tree))
    except StatementRefused as refusal:
        return GuardVerdict(False, str(refusal))
    except RecursionError:
        return GuardVerdict(False, "the statement is nested too deeply")
    except Exception:
        # A statement that cannot be judged must not run, and must not stop the guard for others.
        _LOG.exception("the guard failed on a statement of %d characters", len(statement))
        return GuardVerdict(False, "the statement cannot be checked")


class _Parser(PostgresParser):
    """A parser with a step limit, because some of its backtracking takes exponential time."""

    def __init__(self, tokens: int) -> None:
        super().__init__(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
        self._left = max(tokens * _STEPS_PER_TOKEN, _LEAST_STEPS)

    def _advance(self, times: int = 1) -> None:
        self._left -= 1
        if self._left < 0:
            raise StatementRefused("it takes too long to parse: it has too many nested parts")
        super()._advance(times)


def _parse(scanned: ScannedStatement) -> exp.Expr:
    try:
        tokens = _DIALECT.tokenize(scanned.text)
        ours = [one.text for one in scanned.tokens if one.kind == "string"]
        theirs = [one.text for one in tokens if one.token_type is TokenType.STRING]
        if ours != theirs:
            raise StatementRefused("a quoted text is ambiguous")
        trees = _Parser(len(tokens)).parse(tokens, scanned.text)
    except SqlglotError as error:
        first = str(error).strip().splitlines()[0][:120] if str(error).strip() else "syntax error"
        raise StatementRefused(f"it cannot be parsed: {first}") from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError) as error:
        raise StatementRefused(f"it cannot be parsed ({type(error).__name__})") from None
    if len(trees) != 1 or trees[0] is None:
        raise StatementRefused("exactly one statement is accepted")
    return trees[0]


def _check_words(scanned: ScannedStatement, tree: exp.Expr) -> None:
    """Refuse the statement if a word is neither on an allow-list nor a name in the parsed tree.

    So a word that the parser has ignored is refused.
    """
    names = {str(one.this).lower() for one in tree.find_all(exp.Identifier)}
    for token in scanned.tokens:
        if token.kind == "word" and token.text not in KEYWORDS | TYPES | UNITS | FUNCTIONS | names:
            raise StatementRefused(f'"{token.text}" is not accepted')


def _limited(scanned: ScannedStatement, tree: exp.Expr) -> str:
    """Return the statement, limited to MAX_ROWS rows. Raises Refused if it has a LIMIT that is not a whole number."""
    limit = tree.args.get("limit")
    if limit is None:
        return f"{scanned.text}\nLIMIT {MAX_ROWS}"
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if not isinstance(count, exp.Literal) or count.is_string or not str(count.this).isdecimal():
        raise StatementRefused("LIMIT must be a whole number")
    if int(count.this) <= MAX_ROWS:
        return scanned.text
    # The last LIMIT or FETCH outside brackets belongs to the outermost statement.
    depth, place = 0, None
    for index, token in enumerate(scanned.tokens):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0) if token.kind == "mark" else 0
        if depth == 0 and token.kind == "word" and token.text in ("limit", "fetch"):
            place = index
    following = scanned.tokens[(place or 0) + 1 :] if place is not None else ()
    number = next((one for one in following if one.kind == "number"), None)
    if number is None or number.text != str(count.this):
        raise StatementRefused(f"LIMIT must be at most {MAX_ROWS:,}")
    return scanned.text[: number.start] + str(MAX_ROWS) + scanned.text[number.end :]
