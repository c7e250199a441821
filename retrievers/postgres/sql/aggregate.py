"""Compile an aggregate and a filter to one readable SELECT over the view `documents`.

The statement is shown with its result and can be run again, so it contains values as literals. A filter has the same
meaning as in `retrievers.core.filters.matches_filter`: a field has any number of values, and a comparison is true if
one of them satisfies it. In SQL a missing value makes a comparison unknown. Under AND and OR, unknown has the same
effect as false, and a negation is written as `IS NOT TRUE`, which is true for unknown.
"""

import re
from collections.abc import Sequence
from typing import Any

from retrievers.core.aggregates import Aggregate, Expression, Than
from retrievers.core.errors import BadRequest
from retrievers.core.filters import And, FieldCondition, Filter, Not, Or
from retrievers.core.metadata import Scalar, is_finite, parse_date
from retrievers.postgres.guard.guard import MAX_ROWS
from retrievers.postgres.sql.view import DocumentsView, quoted_name, quoted_text

_ORDER = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_LENGTH = re.compile(r"len\((.+)\)")
_TURNED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def compile_aggregate(aggregate: Aggregate, wanted: Filter | None, view: DocumentsView) -> str:
    """Compile an aggregate over the documents that satisfy a filter.

    Args:
        wanted: the filter of the documents; None for all documents of the view.
    Returns:
        A SELECT that the guard (`guard.judge_statement`) accepts, unless it exceeds the guard's size limit.
    Raises:
        BadRequest: a value in `between`, which names a group, does not fit the type of `group_by`.
    """
    conditions = [compile_filter(wanted, view)] if wanted else []
    if aggregate.where is not None and aggregate.op != "share":
        conditions.append(compile_filter(aggregate.where, view))
    writer = _Writer(aggregate, view, conditions)
    if aggregate.than is not None:
        writer.compare_with_others(aggregate.than)
    if aggregate.op == "list":
        return writer.list_documents()
    if aggregate.op == "difference":
        return writer.difference()
    if aggregate.group_by is None:
        return writer.single()
    return writer.groups() if aggregate.over is None else writer.over_groups()


def compile_filter(wanted: Filter, view: DocumentsView) -> str:
    """Return an SQL condition that is true for documents that satisfy the filter, and false or NULL for the others."""
    match wanted:
        case And(parts):
            return " AND ".join(_inside(part, view) for part in parts)
        case Or(parts) if len(parts) == 1:
            return compile_filter(parts[0], view)
        case Or(parts):
            return "(" + " OR ".join(_inside(part, view) for part in parts) + ")"
        case Not(part):
            return f"({compile_filter(part, view)}) IS NOT TRUE"
        case FieldCondition(op, key, value):
            length = _LENGTH.fullmatch(key) if key not in view.names else None
            if length is not None:
                return _compare(op, "numeric", list_length_sql(view.column(length[1])), value, view)
            return _compare(op, view.kind(key), view.column(key), value, view)


def list_length_sql(column: str) -> str:
    """Return SQL for the length of the list in a column, which is 0 for NULL."""
    return f"coalesce(cardinality({column}), 0)"


def _inside(part: Filter, view: DocumentsView) -> str:
    written = compile_filter(part, view)
    return f"({written})" if isinstance(part, And) and len(part.filters) > 1 else written


def _compare(op: str, kind: str, column: str, value: Scalar | tuple[Scalar, ...], view: DocumentsView) -> str:
    listed, item = kind.endswith("[]"), kind.removesuffix("[]")
    if op == "exists":
        return f"{column} IS NOT NULL" if value else f"{column} IS NULL"
    if isinstance(value, tuple):
        if not value:
            return "false" if op == "in" else "true"
        literals = ", ".join(sql_literal(one, item) for one in value)
        among = f"{column} && ARRAY[{literals}]::{kind}" if listed else f"{column} IN ({literals})"
        if listed and item == "date" and any(len(str(one)) > 10 for one in value):
            # There is no operator that compares an array of dates with an array of timestamps.
            among = "(" + " OR ".join(f"{sql_literal(one, item)} = ANY ({column})" for one in value) + ")"
        return among if op == "in" else f"({among}) IS NOT TRUE"
    written = sql_literal(value, item)
    if op == "ne":
        return f"({written} = ANY ({column})) IS NOT TRUE" if listed else f"{column} IS DISTINCT FROM {written}"
    if op == "contains":
        return f"{written} = ANY ({column})" if listed else f"strpos({column}, {written}) > 0"
    if op == "prefix" and listed:
        member = quoted_name(_unused("member", view))
        return f"EXISTS (SELECT 1 FROM unnest({column}) AS {member} WHERE starts_with({member}, {written}))"  # noqa: S608
    if op == "prefix":
        return f"starts_with({column}, {written})"
    return f"{written} {_TURNED[_ORDER[op]]} ANY ({column})" if listed else f"{column} {_ORDER[op]} {written}"


def sql_literal(value: Scalar, kind: str) -> str:
    """Return a value as an SQL literal, for comparison with a column of the SQL type `kind`, such as "date"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind in ("date", "timestamp") and isinstance(value, str):
        return f"TIMESTAMP '{value.replace('T', ' ')}'" if len(value) > 10 else f"DATE '{value}'"
    return quoted_text(value) if isinstance(value, str) else repr(value)


def _unused(name: str, view: DocumentsView) -> str:
    while name in view.columns:
        name += "_"
    return name


class _Writer:
    """Writes the SQL statement of one aggregate. Each public method writes the statement for one kind of aggregate."""

    def __init__(self, aggregate: Aggregate, view: DocumentsView, conditions: Sequence[str]) -> None:
        self._aggregate, self._view = aggregate, view
        self._conditions = list(conditions)
        self._tables = ["documents"]

    def compare_with_others(self, than: Than) -> None:
        """Add the conditions that keep the documents whose value compares so with that of `than.record`."""
        value, others = self._value(than.of), compile_filter(than.record, self._view)
        written = {"gt": f"max({value})", "lt": f"min({value})", "eq": value}[than.relation]
        beside = f"(SELECT {written} FROM documents WHERE {others})"  # noqa: S608
        beside = f"ANY {beside}" if than.relation == "eq" else beside
        self._conditions += [f"{value} {_ORDER[than.relation]} {beside}", f"({others}) IS NOT TRUE"]

    def list_documents(self) -> str:
        """Return the statement that lists documents, sorted by `of`."""
        aggregate, view = self._aggregate, self._view
        shown = [one for one in (*aggregate.show, *filter(None, [aggregate.of])) if str(one) not in ("id", "title")]
        columns = ["id"] + (["title"] if "title" in view.columns else [])
        for one in dict.fromkeys(shown):
            columns.append(self._named(self._value(one), one))
        order = "ORDER BY id"
        if aggregate.of is not None:
            direction = "DESC" if aggregate.order == "desc" else "ASC"
            order = f"ORDER BY {self._sortable(aggregate.of, direction)} {direction} NULLS LAST"
            if aggregate.ties and aggregate.limit is not None:
                name = quoted_name(_output(aggregate.of))
                settled = "" if self._is_list(aggregate.of) else f"{name} {direction} NULLS LAST, "
                return self._with_ties(columns, order, "id", settled)
            order += ", id"
        elif aggregate.order == "desc":
            order += " DESC"
        return self._select(columns, order, self._limit())

    def single(self) -> str:
        """Return the statement that calculates a single value over all documents that satisfy the conditions."""
        if self._aggregate.op == "share":
            assert self._aggregate.where is not None
            part = f"count(*) FILTER (WHERE {compile_filter(self._aggregate.where, self._view)})"
            return self._select([f"{self._calculated()} AS percent", f"{part} AS part", "count(*) AS whole"])
        if self._having() and self._aggregate.of is not None:
            member = self._member(self._aggregate.of)
            self._conditions.append(f"{member} IS NOT NULL")
            counted = self._select([member], f"GROUP BY {member}{self._having()}")
            return f"SELECT count(*) AS count FROM (\n{counted}\n) AS counted"  # noqa: S608
        return self._select([self._calculated(after=True)])

    def difference(self) -> str:
        """Return the statement for the count or sum of the first group in `between` minus that of the second.

        If the aggregate has an `order`, the smaller number is subtracted from the larger.
        """
        group, of = self._aggregate.group_by, self._aggregate.of
        assert group is not None
        value = "count(*)" if of is None else f"sum({self._member(of)})"
        first, second = (f"{value} FILTER (WHERE {self._belongs(group, one)})" for one in self._aggregate.between)
        written = f"abs({first} - {second})" if self._aggregate.order is not None else f"{first} - {second}"
        return self._select([f"{written} AS difference"])

    def groups(self) -> str:
        """Return the statement for one row per group, with the group's value and the calculated value."""
        aggregate = self._aggregate
        assert aggregate.group_by is not None
        group = self._member(aggregate.group_by)
        name = quoted_name(_output(aggregate.group_by))
        value: str = "percent" if aggregate.op == "share" else aggregate.op
        if value == _output(aggregate.group_by):
            value = "value"
        self._limit_groups(aggregate.group_by)
        columns = [group if group == name else f"{group} AS {name}", f"{self._calculated()} AS {value}"]
        grouping = f"GROUP BY {group}{self._having()}"
        if aggregate.order is None:
            return self._select(columns, grouping, f"ORDER BY {group}", self._limit())
        order = f"ORDER BY {value} {aggregate.order.upper()} NULLS LAST"
        if aggregate.ties and aggregate.limit is not None:
            return self._with_ties(columns, f"{grouping}\n{order}", name, f"{value} {aggregate.order.upper()}, ")
        return self._select(columns, grouping, f"{order}, {group}", self._limit())

    def over_groups(self) -> str:
        """Return the statement that aggregates the calculated values of all groups into one value."""
        aggregate = self._aggregate
        assert aggregate.group_by is not None
        assert aggregate.over is not None
        group = self._member(aggregate.group_by)
        self._limit_groups(aggregate.group_by)
        calculated = self._calculated(of_groups=True)
        each = self._select([f"{calculated} AS value"], f"GROUP BY {group}{self._having()}")
        written = self._rounded(_function(aggregate.over, "value"))
        return f"SELECT {written} AS {aggregate.over}, count(*) AS groups FROM (\n{each}\n) AS grouped"  # noqa: S608

    def _limit_groups(self, expression: Expression) -> None:
        """Add a WHERE condition: the group is one of those in `between`; if `between` is empty, the group is not NULL.

        Args:
            expression: the `group_by` of the aggregate. For `len`, which is never NULL, no condition is needed.
        """
        group, wanted = self._member(expression), self._aggregate.between
        if wanted:
            literals = ", ".join(self._group_literal(one, expression, self._kind(expression)) for one in wanted)
            self._conditions.append(f"{group} IN ({literals})")
        elif expression.function != "len":
            self._conditions.append(f"{group} IS NOT NULL")

    def _having(self) -> str:
        least, most = self._aggregate.at_least, self._aggregate.at_most
        bounds = [f"count(*) >= {least}"] if least is not None else []
        bounds += [f"count(*) <= {most}"] if most is not None else []
        return f" HAVING {' AND '.join(bounds)}" if bounds else ""

    def _calculated(self, *, after: bool = False, of_groups: bool = False) -> str:
        """Return SQL for the value that the aggregate calculates, such as `count(*)`.

        Args:
            after: append AS and the column name: `count(*) AS count`.
            of_groups: do not round, because `over` aggregates the values of the groups again.
        """
        aggregate = self._aggregate
        decimals = aggregate.decimals
        if aggregate.op == "count":
            written = "count(*)" if aggregate.of is None else f"count(DISTINCT {self._member(aggregate.of)})"
        elif aggregate.op == "share":
            assert aggregate.where is not None
            condition = compile_filter(aggregate.where, self._view)
            part = f"100.0 * count(*) FILTER (WHERE {condition}) / nullif(count(*), 0)"
            written = f"round({part}, {1 if decimals is None else decimals})"
        else:
            assert aggregate.of is not None
            value = self._member(aggregate.of)
            written = _function(aggregate.op, value)
            if self._kind(aggregate.of) == "numeric" and not of_groups:
                written = self._rounded(written)
        return f"{written} AS {aggregate.op}" if after else written

    def _rounded(self, written: str) -> str:
        decimals = self._aggregate.decimals
        # round() with decimals takes only numeric, but a median, and an aggregate of medians, is a double.
        number = f"({written})::numeric" if "median" in (self._aggregate.op, self._aggregate.over) else written
        return written if decimals is None else f"round({number}, {decimals})"

    def _select(self, columns: Sequence[str], *rest: str) -> str:
        lines = [f"SELECT {', '.join(columns)}", f"FROM {', '.join(self._tables)}"]
        if self._conditions:
            lines.append("WHERE " + "\n  AND ".join(self._conditions))
        return "\n".join([*lines, *filter(None, rest)])

    def _with_ties(self, columns: Sequence[str], order: str, last: str, first: str = "") -> str:
        """Return the statement for the first `limit` rows and all rows that tie with the last of them.

        Args:
            columns: the expressions to select.
            order: the GROUP BY and ORDER BY clauses that decide which rows are the first.
            last: the column that orders tied rows in the result.
            first: sort keys before `last`, such as "count DESC, "; "" to return tied rows in any order.
        """
        inner = self._select(columns, order, f"FETCH FIRST {self._aggregate.limit} ROWS WITH TIES")
        if not first:
            return inner
        return "SELECT * FROM (\n" + inner + f"\n) AS best\nORDER BY {first}{last}\nLIMIT {MAX_ROWS}"  # noqa: S608

    def _limit(self) -> str:
        return "" if self._aggregate.limit is None else f"LIMIT {self._aggregate.limit}"

    def _kind(self, expression: Expression) -> str:
        """Return the SQL type of an expression's value, such as "numeric"; for a list the type of its members."""
        if expression.function is not None:
            return "text" if expression.function in ("year_month", "year_quarter") else "numeric"
        return self._view.kind(expression.field).removesuffix("[]")

    def _is_list(self, expression: Expression) -> bool:
        kind = self._view.kind(expression.field)
        return kind.endswith("[]") and expression.function != "len"

    def _named(self, written: str, expression: Expression) -> str:
        name = quoted_name(_output(expression))
        return written if written == name else f"{written} AS {name}"

    def _value(self, expression: Expression) -> str:
        """Return SQL for the expression's value in a document.

        For a list field that is the list, or for a date function such as `year` of a list its first member.
        """
        column = self._view.column(expression.field)
        kind = self._view.kind(expression.field)
        if expression.function is None:
            return column
        if expression.function == "len":
            if kind.endswith("[]"):
                return list_length_sql(column)
            return f"coalesce(length({column}), 0)" if kind == "text" else f"num_nonnulls({column})"
        if expression.function == "number":
            return f"CAST(replace(regexp_substr({column}, '-?[0-9][0-9,]*([.][0-9]+)?'), ',', '') AS numeric)"
        if kind.endswith("[]"):
            return _part(expression.function, f"{column}[1]")
        return _part(expression.function, column)

    def _member(self, expression: Expression) -> str:
        """Return SQL for one value per row. For a list, add unnest() to FROM, so that each member gets a row."""
        if not self._is_list(expression):
            return self._value(expression)
        column = self._view.column(expression.field)
        name = quoted_name(_unused(_output(expression) if expression.function else "member", self._view))
        source = f"unnest({column}) AS {name}"
        if source not in self._tables:
            self._tables.append(source)
        return name if expression.function is None else _part(expression.function, name)

    def _sortable(self, expression: Expression, direction: str) -> str:
        if not self._is_list(expression) or expression.function is not None:
            return self._value(expression)
        member = quoted_name(_unused("member", self._view))
        best = "max" if direction == "DESC" else "min"
        return f"(SELECT {best}({member}) FROM unnest({self._view.column(expression.field)}) AS {member})"  # noqa: S608

    def _belongs(self, group: Expression, value: Any) -> str:
        written = self._group_literal(value, group, self._kind(group))
        if self._is_list(group) and group.function is None:
            return f"{written} = ANY ({self._view.column(group.field)})"
        return f"{self._value(group)} = {written}"

    def _group_literal(self, value: Any, group: Expression, kind: str) -> str:
        """Return a value of `between` as an SQL literal of the type `kind`.

        Args:
            group: the `group_by`, for the error.
        Raises:
            BadRequest: the value does not fit the type.
        """
        try:
            if kind == "numeric" and not isinstance(value, bool):
                number = value if isinstance(value, int | float) else float(value)
                if not is_finite(number):
                    raise ValueError("a literal is a number")
                return repr(int(number) if float(number).is_integer() else number)
            if kind == "boolean":
                return {"true": "true", "false": "false"}[str(value).lower()]
            if kind in ("date", "timestamp"):
                return sql_literal(parse_date(str(value)), kind)
        except (ValueError, KeyError, OverflowError):
            raise BadRequest(f'aggregate: "{value}" is not a value of {group}', where="aggregate.between") from None
        return quoted_text(str(value))


def _function(name: str, value: str) -> str:
    """Return SQL that applies an aggregate function to a value: ("sum", "size") -> "sum(size)"."""
    return f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {value})" if name == "median" else f"{name}({value})"


def _part(function: str, written: str) -> str:
    if function == "half":
        return f"ceil(EXTRACT(MONTH FROM {written}) / 6)"
    if function == "year_month":
        return f"to_char({written}, 'YYYY-MM')"
    if function == "year_quarter":
        return f"to_char({written}, 'YYYY\"-Q\"Q')"
    return f"EXTRACT({function.upper()} FROM {written})"


def _output(expression: Expression) -> str:
    """Return the name of an expression's column in the result: `len(tags)` -> "number of tags"."""
    named = {"len": f"number of {expression.field}", "number": expression.field}
    return named.get(expression.function or "", expression.function or expression.field)
