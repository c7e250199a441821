"""The guard's check of a parsed statement: every table, column, function and type, each in its scope.

A name is resolved as by PostgreSQL: first among the tables of its own SELECT, then among those of enclosing SELECTs.
`d.name` requires a column of this name in `d`, because PostgreSQL would otherwise call the function `name(d)`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from retrievers.postgres.guard.allowlists import FUNCTIONS, ROW_FUNCTIONS, TYPES
from retrievers.postgres.guard.lexer import StatementRefused
from retrievers.postgres.guard.nodes import VIEW, check_clauses, check_node

MAX_VIEWS = 8
MAX_JOINED_VIEWS = 3
MAX_LISTS = 3
MAX_QUERIES = 20
MAX_NODES = 4000

_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery)


def identifier_name(identifier: object) -> str:
    """Return a name as PostgreSQL reads it: with ASCII letters in lower case, unless it is quoted.

    Raises:
        Refused: it is not a plain name.
    """
    if not isinstance(identifier, exp.Identifier):
        raise StatementRefused("only a plain name is accepted there")
    text = str(identifier.this)
    return text if identifier.args.get("quoted") else "".join(c.lower() if c.isascii() else c for c in text)


@dataclass(frozen=True, slots=True)
class WithTable:
    """A table defined by WITH: its columns, and whether it has at most one row (`single`)."""

    columns: frozenset[str]
    single: bool


Tables = Mapping[str, WithTable]


@dataclass(slots=True)
class SelectScope:
    """The tables of one SELECT.

    Attributes:
        outer: the scope of the enclosing SELECT, if any.
        tables: table name to column names. A table without a name gets one that begins with "?".
        views: number of tables that read the view `documents` and may have more than one row.
        list_sources: number of functions and VALUES in FROM, such as unnest(), which returns the members of a list.
    """

    outer: "SelectScope | None" = None
    tables: dict[str, frozenset[str]] = field(default_factory=dict)
    views: int = 0
    list_sources: int = 0

    def add(self, name: str, columns: frozenset[str]) -> None:
        """Add a table.

        Raises:
            Refused: the name is already used.
        """
        if name in self.tables:
            raise StatementRefused(f'the table name "{name}" is used twice')
        self.tables[name] = columns

    def enclosing_scopes(self) -> "Iterator[SelectScope]":
        """Yield this scope and the enclosing ones, innermost first."""
        scope: SelectScope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def check(self, name: str, table: str | None) -> None:
        """Check that a column exists in a table of this scope or of an enclosing one.

        Args:
            table: the table that must have the column; None for any table.
        Raises:
            Refused: there is no such column.
        """
        if table is None:
            if not any(name in columns for scope in self.enclosing_scopes() for columns in scope.tables.values()):
                raise StatementRefused(f"there is no column \"{name}\"; quote it if it is a text: '{name}'")
            return
        for scope in self.enclosing_scopes():
            if table in scope.tables:
                if name not in scope.tables[table]:
                    raise StatementRefused(f'"{table}" has no column "{name}"')
                return
        raise StatementRefused(f'there is no table "{table}" at "{table}.{name}"')


class NameResolver:
    """Checks a parsed statement in one walk. Every method raises Refused for anything that is not allowed.

    Args:
        columns: the columns of the view `documents`.
    """

    def __init__(self, columns: frozenset[str]) -> None:
        self._columns = columns
        self.views = self._queries = self._nodes = 0

    def query(self, node: object, outer: SelectScope | None, tables: "Tables") -> list[str]:
        """Check a query and return the names of its result columns.

        Args:
            outer: the scope of the enclosing SELECT; None for the statement itself.
            tables: tables that an enclosing WITH defines, which FROM may use beside the view.
        """
        self._queries += 1
        if self._queries > MAX_QUERIES * 3:
            raise StatementRefused("too many queries inside one another")
        if not isinstance(node, _QUERIES):
            raise StatementRefused(f"only a SELECT is accepted, not {type(node).__name__.upper()}")
        check_clauses(node)
        tables = self._with(node, outer, tables)
        if isinstance(node, exp.Select):
            return self._select(node, outer, tables)
        if isinstance(node, exp.SetOperation):
            names = self.query(node.this, outer, tables)
            self.query(node.expression, outer, tables)
        else:
            names = self.query(node.this, outer, tables)
        rows = SelectScope(outer, {"": frozenset(names)})
        for part in ("order", "limit", "offset"):
            self._expression(node.args.get(part), rows, tables)
        return names

    def _with(self, node: exp.Expr, outer: SelectScope | None, tables: "Tables") -> "Tables":
        clause = node.args.get("with_")
        if clause is None:
            return tables
        check_clauses(clause)
        for one in clause.expressions:
            if not isinstance(one, exp.CTE):
                raise StatementRefused("WITH needs a name and a SELECT")
            check_clauses(one)
            alias = one.args["alias"]
            check_clauses(alias)
            name = identifier_name(alias.this)
            if name == VIEW or name in tables:
                raise StatementRefused(f'WITH must not define "{name}" again')
            found = self.query(one.this, outer, tables)
            tables = {**tables, name: WithTable(frozenset(self._renamed(found, alias)), _is_one_row(one.this))}
        return tables

    def _renamed(self, names: list[str], alias: exp.Expr | None) -> list[str]:
        columns = [identifier_name(one) for one in (alias.args.get("columns") or ())] if alias else []
        return columns + names[len(columns) :]

    def _select(self, node: exp.Select, outer: SelectScope | None, tables: "Tables") -> list[str]:
        scope = SelectScope(outer)
        source = node.args.get("from_")
        if source is not None:
            self._source(source.this, scope, tables)
        for join in [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]:
            self._join(join, scope, tables)
        names = self._answers(node, scope)
        for expression in node.expressions:
            self._item(expression, scope, tables)
        for part in ("where", "having", "windows", "limit", "offset"):
            self._expression(node.args.get(part), scope, tables)
        sorting = SelectScope(scope, {"": frozenset(names)})
        for part in ("group", "order", "distinct"):
            self._expression(node.args.get(part), sorting, tables)
        if scope.views > 1 and _links(node, equal=scope.views > 2) < scope.views - 1:
            raise StatementRefused(
                "a join needs a condition that compares columns of both tables, such as ON a.x = b.x"
            )
        return names

    def _join(self, join: exp.Expr, scope: SelectScope, tables: "Tables") -> None:
        if isinstance(join, exp.Lateral):
            self._source(join, scope, tables)
            return
        if not isinstance(join, exp.Join):
            raise StatementRefused(f"{type(join).__name__} is not accepted in FROM")
        check_clauses(join)
        self._source(join.this, scope, tables)
        self._expression(join.args.get("on"), scope, tables)
        for one in join.args.get("using") or ():
            scope.check(identifier_name(one.this if isinstance(one, exp.Column) else one), None)

    def _source(self, node: object, scope: SelectScope, tables: "Tables") -> None:
        """Check one table of FROM and add it to the scope.

        Functions and LATERAL queries in it may use the columns of earlier tables.
        """
        if isinstance(node, exp.Lateral):
            check_clauses(node)
            if isinstance(node.this, exp.Subquery):
                self._derived(node.this, node.args.get("alias") or node.this.args.get("alias"), scope, tables, scope)
            else:
                self._rows(node.this, node.args.get("alias"), scope, tables)
        elif isinstance(node, exp.Subquery):
            self._derived(node, node.args.get("alias"), scope, tables, scope.outer)
        elif isinstance(node, exp.Unnest | exp.Values):
            check_clauses(node)
            self._rows(node, node.args.get("alias"), scope, tables)
        elif isinstance(node, exp.Table):
            self._table(node, scope, tables)
        else:
            raise StatementRefused(f"{type(node).__name__} is not accepted in FROM")

    def _derived(
        self, node: exp.Subquery, alias: Any, scope: SelectScope, tables: "Tables", outer: SelectScope | None
    ) -> None:
        before = self.views
        if isinstance(node.this, exp.Table):
            raise StatementRefused("a join in brackets is not accepted")
        names = self.query(node, outer, tables)
        if not _is_one_row(node.this) and not (outer is scope and node.this.args.get("limit")):
            scope.views += min(self.views - before, 1)
        if alias is not None and alias.this is not None:
            check_clauses(alias)
            scope.add(identifier_name(alias.this), frozenset(self._renamed(names, alias)))
        else:
            scope.add(f"?{len(scope.tables)}", frozenset(names))

    def _table(self, node: exp.Table, scope: SelectScope, tables: "Tables") -> None:
        check_clauses(node)
        if isinstance(node.this, exp.Func):
            self._rows(node.this, node.args.get("alias"), scope, tables)
            return
        name = identifier_name(node.this)
        if name == VIEW:
            self.views += 1
            scope.views += 1
            columns = self._columns
        elif name in tables:
            columns = tables[name].columns
            scope.views += not tables[name].single
        else:
            raise StatementRefused(f'there is no table "{name}"; the only one is "{VIEW}"')
        if self.views > MAX_VIEWS or scope.views > MAX_JOINED_VIEWS:
            raise StatementRefused(f'"{VIEW}" is read or joined too often')
        alias = node.args.get("alias")
        if alias is not None:
            check_clauses(alias)
            columns = columns | frozenset(self._renamed([], alias))
        scope.add(identifier_name(alias.this) if alias is not None and alias.this is not None else name, columns)
        for join in [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]:
            self._join(join, scope, tables)

    def _rows(self, node: exp.Expr, alias: Any, scope: SelectScope, tables: "Tables") -> None:
        """Check a function in FROM, such as unnest(), or VALUES, and add its rows to the scope as the table `alias`."""
        scope.list_sources += 1
        if scope.list_sources > MAX_LISTS:
            raise StatementRefused(f"one FROM reads the members of more than {MAX_LISTS} lists")
        for child in node.args.get("expressions") or () if isinstance(node, exp.Unnest | exp.Values) else (node,):
            self._expression(child, scope, tables)
        names = {"ordinality", "unnest", "generate_series", "generate_subscripts", "column1", "column2", "column3"}
        if alias is None or alias.this is None:
            scope.add(f"?{len(scope.tables)}", frozenset(names))
            return
        check_clauses(alias)
        name = identifier_name(alias.this)
        columns = {identifier_name(one) for one in alias.args.get("columns") or ()}
        if isinstance(node.args.get("offset"), exp.Identifier):
            columns.add(identifier_name(node.args["offset"]))
        scope.add(name, frozenset({name, "ordinality"} | columns | (names if not columns else set())))

    def _answers(self, node: exp.Select, scope: SelectScope) -> list[str]:
        names: list[str] = []
        for one in node.expressions:
            if isinstance(one, exp.Alias):
                names.append(identifier_name(one.args["alias"]))
            elif isinstance(one, exp.Star):
                names += sorted(name for columns in scope.tables.values() for name in columns)
            elif isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
                names += sorted(scope.tables.get(identifier_name(one.args.get("table")), ()))
            elif isinstance(one, exp.Column):
                names.append(identifier_name(one.this))
            else:
                # PostgreSQL names an unnamed column after its function or type. So all names that it could have are
                # accepted for it. They are on the allow-list, so a reference to them cannot call another function.
                names += sorted(FUNCTIONS | TYPES | {"case", "array", "exists", "?column?"})
        return names

    def _item(self, node: exp.Expr, scope: SelectScope, tables: "Tables") -> None:
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            if inner is node and not (isinstance(inner, exp.Star) and any(inner.args.values())):
                if isinstance(inner, exp.Column) and identifier_name(inner.args.get("table")) not in scope.tables:
                    raise StatementRefused(f'there is no table "{identifier_name(inner.args.get("table"))}"')
                return
            raise StatementRefused("* cannot have an alias")
        self._expression(node, scope, tables)

    def _expression(self, node: object, scope: SelectScope, tables: "Tables") -> None:
        """Check a node and everything below it. Queries inside it get scopes of their own."""
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one, list | tuple):
                waiting.extend(one)
            elif isinstance(one, _QUERIES):
                self.query(one, scope, tables)
            elif isinstance(one, exp.Column):
                self._column(one, scope)
            elif isinstance(one, exp.Expr):
                self._nodes += 1
                if self._nodes > MAX_NODES:
                    raise StatementRefused("the statement is too large")
                check_node(one)
                waiting.extend(self._parts(one))

    def _parts(self, node: exp.Expr) -> list[object]:
        if isinstance(node, exp.Alias):
            identifier_name(node.args["alias"])
            return [node.this]
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star) and not any(node.this.args.values()):
            return []
        if isinstance(node, exp.Star):
            raise StatementRefused("* is not accepted there")
        return list(node.args.values())

    def _column(self, node: exp.Column, scope: SelectScope) -> None:
        check_clauses(node)
        table = node.args.get("table")
        if isinstance(node.this, exp.Star):
            raise StatementRefused("* is not accepted there")
        scope.check(identifier_name(node.this), None if table is None else identifier_name(table))


def _links(node: exp.Select, *, equal: bool) -> int:
    """Count the join conditions of a SELECT: USING, NATURAL, and comparisons of columns of two tables.

    Args:
        equal: of the comparisons, count only those with "=".
    """
    kinds: tuple[type[exp.Expr], ...] = (exp.EQ,)
    if not equal:
        kinds = (exp.EQ, exp.LT, exp.GT, exp.LTE, exp.GTE, exp.Like, exp.ILike, exp.ArrayOverlaps, exp.ArrayContainsAll)
    joins = node.args.get("joins") or ()
    links = sum(bool(one.args.get("using") or one.args.get("method")) for one in joins)
    places = [one.args.get("on") for one in joins] + [node.args.get("where")]
    for comparison in (found for place in places if place is not None for found in place.find_all(*kinds)):
        tables = {one.table for one in comparison.find_all(exp.Column)}
        links += len(tables) > 1 and comparison.find_ancestor(exp.Select) is node
    return links


def _is_one_row(node: object) -> bool:
    """Return whether a query returns at most one row: an aggregate over all rows, or LIMIT 1."""
    if not isinstance(node, exp.Select):
        return False
    limit = node.args.get("limit")
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal) and limit.expression.this == "1":
        return True
    functions = [found for one in node.expressions for found in one.find_all(exp.Func)]
    if node.args.get("group") or any(isinstance(one, exp.Unnest | exp.UDTF | exp.Explode) for one in functions):
        return False
    if any(isinstance(one, exp.Anonymous) and str(one.this).lower() in ROW_FUNCTIONS for one in functions):
        return False
    return any(
        not isinstance(found.parent, exp.Window) and found.find_ancestor(exp.Select) is node
        for one in node.expressions
        for found in one.find_all(exp.AggFunc)
    )
