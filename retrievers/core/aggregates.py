"""Aggregates over document metadata: counts, sums, extremes, groups. Reads them from JSON and checks them.

    {"op": "count|list|sum|avg|median|min|max|share|difference", "of": EXPRESSION|null, "group_by": EXPRESSION|null,
     "order": "asc|desc"|null, "limit": N|null, "where": FILTER|null, "between": [V, V]|null,
     "show": [EXPRESSION, ...], "decimals": N|null, "ties": false, "at_least": N|null,
     "at_most": N|null, "over": "avg|median|min|max"|null,
     "than": {"type": "gt|lt|eq", "of": EXPRESSION, "record": FILTER}|null}

An EXPRESSION is a field or a function of a field: `len`, `year`, `half`, `quarter`, `month`, `year_month`,
`year_quarter` or `number`, for example `len(authors)` or `year(created)`. `half`, `quarter` and `month` range from 1 to
2, 4 and 12 and ignore the year. `year_month` and `year_quarter` are texts such as "2024-05" and "2024-Q2". `number` is
the first number in a text: 1164.25 for "EUR 1,164.25". The FILTER may also compare the length of a list as a number:
{"type": "gte", "key": "len(authors)", "value": 5}.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from retrievers.core.errors import BadRequest, join_names
from retrievers.core.filters import Filter, filter_to_json, parse_filter
from retrievers.core.metadata import Field, is_finite

Op = Literal["count", "list", "sum", "avg", "median", "min", "max", "share", "difference"]
Over = Literal["avg", "median", "min", "max"]
Relation = Literal["gt", "lt", "eq"]
Function = Literal["len", "year", "half", "quarter", "month", "year_month", "year_quarter", "number"]

MAX_LIMIT = 1000
MAX_SHOWN = 8
_MOST = 1_000_000_000
_CALL = re.compile(r"(\w+)\((.+)\)")
_KEYS = (
    "op",
    "of",
    "group_by",
    "order",
    "limit",
    "where",
    "between",
    "show",
    "decimals",
    "ties",
    "at_least",
    "at_most",
    "over",
    "than",
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A field, or a function of it: `len` of any field (0 if absent), `number` of a text, other functions of a date."""

    field: str
    function: Function | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.field})" if self.function else self.field


@dataclass(frozen=True, slots=True)
class Than:
    """A condition on documents: their value of `of` is greater than, less than or equal to that of other documents.

    Attributes:
        record: selects the other documents. A greater value is greater than all of theirs, an equal one equals one of
            theirs. They themselves never satisfy the condition.
    """

    relation: Relation
    of: Expression
    record: Filter


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One calculation over the documents that satisfy a filter.

    Attributes:
        op: `count` counts documents. `list` lists them. `sum`, `avg`, `median`, `min` and `max` aggregate `of`. `share`
            is the percentage of documents that satisfy `where`. `difference` subtracts the second of two groups from
            the first, in document count or in the sum of `of`; with an `order` it subtracts the smaller from the
            larger.
        of: the expression that `sum`, `avg`, `median`, `min` or `max` aggregates. For `count`: its distinct values are
            counted instead of documents. For `list`: the sort key of the documents.
        group_by: return one row per value of this expression. A document counts for every member of a list field.
        order, limit: sort direction and maximum number of rows. Groups are sorted by their calculated value, the
            documents of `list` by `of`.
        between: for `difference` the two values of `group_by`; otherwise the only groups to return.
        show: for `list`: expressions to return beside the document id.
        ties: with `limit`: also return the rows whose value equals the value of the last row.
        at_least, at_most: keep only groups with at least or at most this number of documents. For a `count` of
            distinct values: count only values that occur in at least or at most this number of documents.
        over: aggregate the values of all groups into one, for example the average number of documents per year.
        than: keep only documents whose value compares so with that of other documents: more medals than Canada.
    """

    op: Op
    of: Expression | None = None
    group_by: Expression | None = None
    order: Literal["asc", "desc"] | None = None
    limit: int | None = None
    where: Filter | None = None
    between: tuple[Any, ...] = ()
    show: tuple[Expression, ...] = ()
    decimals: int | None = None
    ties: bool = False
    at_least: int | None = None
    at_most: int | None = None
    over: Over | None = None
    than: Than | None = None


def parse_expression(text: object, fields: Mapping[str, Field], where: str = "aggregate") -> Expression:
    """Read an expression such as `year(created)` over existing fields.

    Args:
        where: the expression's place in the request ("aggregate.of"), for errors.
    Raises:
        BadRequest: the field or function is unknown, or the function does not fit the field's type.
    """
    if not isinstance(text, str):
        raise BadRequest(f"{where}: an expression is text, such as year(created)", where=where)
    call = _CALL.fullmatch(text.strip())
    if text.strip() in fields or call is None:
        name, function = text.strip(), None
    else:
        function, name = call[1].lower(), call[2].strip()
    if name not in fields:
        raise BadRequest(
            f'{where}: there is no field "{name}"; there are: {join_names(fields)}', where=where, valid=fields
        )
    if function is not None and function not in get_args(Function):
        valid = get_args(Function)
        raise BadRequest(
            f'{where}: there is no function "{function}"; there are: {join_names(valid)}', where=where, valid=valid
        )
    if function == "number" and fields[name].type != "string":
        raise BadRequest(f'{where}: number() needs a text field; "{name}" is a {fields[name].type}', where=where)
    if function not in (None, "len", "number") and fields[name].item != "date":
        raise BadRequest(f'{where}: {function}() needs a date field; "{name}" is a {fields[name].item}', where=where)
    return Expression(name, cast("Function | None", function))


def _lengths(fields: Mapping[str, Field]) -> dict[str, Field]:
    """Return a numeric field named "len(NAME)" for every list field, so that a filter can use the list's length."""
    names = (f"len({name})" for name, field in fields.items() if field.type == "list")
    return {name: Field(name, "number", "number") for name in names}


def parse_aggregate(data: object, fields: Mapping[str, Field]) -> Aggregate:
    """Read an aggregate from JSON values and check it against the fields.

    Raises:
        BadRequest: the aggregate is malformed or does not fit the fields. The message names the key and the valid
            values.
    """
    if not isinstance(data, Mapping):
        raise BadRequest("the aggregate must be an object", where="aggregate")
    unknown = sorted(set(map(str, data)) - set(_KEYS))
    if unknown:
        raise BadRequest(
            f'aggregate: unknown key "{unknown[0]}"; there are: {join_names(_KEYS)}', where="aggregate", valid=_KEYS
        )
    op = data.get("op")
    if op not in get_args(Op):
        raise BadRequest(
            f"aggregate: op must be one of {join_names(get_args(Op))}", where="aggregate.op", valid=get_args(Op)
        )

    def expression(key: str) -> Expression | None:
        value = data.get(key)
        return None if value is None else parse_expression(value, fields, f"aggregate.{key}")

    of, group_by = expression("of"), expression("group_by")
    order = data.get("order")
    if order not in (None, "asc", "desc"):
        raise BadRequest('aggregate: order must be "asc" or "desc"', where="aggregate.order", valid=("asc", "desc"))
    between, show = data.get("between") or (), data.get("show") or ()
    if isinstance(between, str) or not isinstance(between, Sequence) or not all(map(_is_scalar, between)):
        raise BadRequest("aggregate: between must be a list of values", where="aggregate.between")
    if isinstance(show, str) or not isinstance(show, Sequence) or len(show) > MAX_SHOWN:
        raise BadRequest(f"aggregate: show must be a list of at most {MAX_SHOWN} expressions", where="aggregate.show")
    where = None if data.get("where") is None else parse_filter(data["where"], {**_lengths(fields), **fields})
    over = data.get("over")
    if over is not None and over not in get_args(Over):
        valid = get_args(Over)
        raise BadRequest(f"aggregate: over must be one of {join_names(valid)}", where="aggregate.over", valid=valid)
    made = Aggregate(
        op=cast("Op", op),
        of=of,
        group_by=group_by,
        order=cast('Literal["asc", "desc"] | None', order),
        limit=_read_number(data, "limit", MAX_LIMIT),
        where=where,
        between=tuple(between),
        show=tuple(parse_expression(one, fields, "aggregate.show") for one in show),
        decimals=_read_number(data, "decimals", 10),
        ties=data.get("ties") is True,
        at_least=_read_number(data, "at_least", _MOST),
        at_most=_read_number(data, "at_most", _MOST),
        over=over,
        than=None if data.get("than") is None else _parse_than(data["than"], fields),
    )
    _check(made, fields)
    return made


def _parse_than(data: object, fields: Mapping[str, Field]) -> Than:
    if not isinstance(data, Mapping) or data.get("type") not in get_args(Relation):
        valid = get_args(Relation)
        raise BadRequest(
            f"aggregate: than needs a type, one of {join_names(valid)}", where="aggregate.than", valid=valid
        )
    of = parse_expression(data.get("of"), fields, "aggregate.than.of")
    if fields[of.field].type == "list" and of.function is None:
        raise BadRequest(f'aggregate: than compares single values; "{of}" is a list', where="aggregate.than.of")
    return Than(cast("Relation", data["type"]), of, parse_filter(data.get("record"), fields))


def _read_number(data: Mapping[Any, Any], key: str, most: int) -> int | None:
    """Return the whole number under a key, from 0 to `most`; None if the key is absent. Raises BadRequest."""
    value = data.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most):
        return value
    raise BadRequest(f"aggregate: {key} must be a whole number from 0 to {most}", where=f"aggregate.{key}")


def _check(made: Aggregate, fields: Mapping[str, Field]) -> None:
    """Raise BadRequest if the keys of an aggregate contradict each other or a required key is missing."""
    op, of, over = made.op, made.of, made.over
    if op in ("sum", "avg", "median", "min", "max") and of is None:
        raise BadRequest(f'aggregate: {op} needs "of"', where="aggregate.of")
    if op in ("sum", "avg", "median") and of is not None and not _is_number(of, fields):
        raise BadRequest(
            f'aggregate: {op} needs a number field; "{of}" is a {fields[of.field].item}', where="aggregate.of"
        )
    grouped = made.group_by is not None and op not in ("list", "difference")
    sized = next((key for key in ("at_least", "at_most") if getattr(made, key) is not None), None)
    if sized is not None and not grouped and (op != "count" or of is None):
        raise BadRequest(f'aggregate: {sized} needs groups: add "group_by"', where=f"aggregate.{sized}")
    if over is not None and not (grouped and op in ("count", "sum", "avg", "median")):
        raise BadRequest(
            'aggregate: over needs counts, sums, averages or medians of groups: add "group_by"',
            where="aggregate.over",
        )
    if over is not None and made.limit is not None:
        raise BadRequest('aggregate: over uses all groups: remove "limit"', where="aggregate.limit")
    if op == "share" and made.where is None:
        raise BadRequest('aggregate: share needs "where"', where="aggregate.where")
    if op == "difference" and (made.group_by is None or len(made.between) != 2):
        raise BadRequest(
            'aggregate: difference needs "group_by" and two values in "between"', where="aggregate.between"
        )


def _is_number(expression: Expression, fields: Mapping[str, Field]) -> bool:
    if expression.function is not None:
        return expression.function not in ("year_month", "year_quarter")
    return fields[expression.field].item == "number"


def aggregate_to_json(aggregate: Aggregate) -> dict[str, Any]:
    """Return the aggregate as JSON values that `parse_aggregate` reads back."""
    than = aggregate.than
    return {
        "op": aggregate.op,
        "of": None if aggregate.of is None else str(aggregate.of),
        "group_by": None if aggregate.group_by is None else str(aggregate.group_by),
        "order": aggregate.order,
        "limit": aggregate.limit,
        "where": None if aggregate.where is None else filter_to_json(aggregate.where),
        "between": list(aggregate.between) or None,
        "show": [str(one) for one in aggregate.show],
        "decimals": aggregate.decimals,
        "ties": aggregate.ties,
        "at_least": aggregate.at_least,
        "at_most": aggregate.at_most,
        "over": aggregate.over,
        "than": than and {"type": than.relation, "of": str(than.of), "record": filter_to_json(than.record)},
    }


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int | float) and is_finite(value))
