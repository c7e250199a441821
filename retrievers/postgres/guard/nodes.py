"""The guard's allow-list of node kinds, types and clauses of a parsed statement."""

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.expressions import DataType

from retrievers.postgres.guard.allowlists import FUNCTIONS, TYPES, word_set
from retrievers.postgres.guard.lexer import StatementRefused

VIEW = "documents"
MAX_EXPONENT = 10
MAX_CUBE = 4


_PLAIN: tuple[type[exp.Expr], ...] = (
    exp.Add, exp.Alias, exp.All, exp.And, exp.Any, exp.Array, exp.ArrayContainedBy, exp.ArrayContainsAll,
    exp.ArrayOverlaps, exp.AtTimeZone, exp.Between, exp.Boolean, exp.Bracket, exp.Case, exp.Column, exp.Cube,
    exp.CurrentDate, exp.CurrentTimestamp, exp.DPipe, exp.DataTypeParam, exp.Distinct, exp.Div, exp.EQ, exp.Escape,
    exp.Exists, exp.Fetch, exp.Filter, exp.GT, exp.GTE, exp.Group, exp.GroupingSets, exp.Having, exp.ILike, exp.Kwarg,
    exp.Overlaps, exp.PropertyEQ,
    exp.Identifier, exp.If, exp.IgnoreNulls, exp.In, exp.Interval, exp.IntervalSpan, exp.Is, exp.LT, exp.LTE,
    exp.Like, exp.Limit, exp.LimitOptions, exp.Literal, exp.Localtimestamp, exp.Mod, exp.Mul, exp.NEQ, exp.Neg,
    exp.Not, exp.Null, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Offset, exp.Or, exp.Order, exp.Ordered, exp.Paren,
    exp.Pow, exp.RegexpILike, exp.RegexpLike, exp.RespectNulls, exp.Rollup, exp.SimilarTo, exp.Slice, exp.Star,
    exp.Sub, exp.TableAlias, exp.Tuple, exp.Unnest, exp.Values, exp.Var, exp.Where, exp.Window, exp.WindowSpec,
    exp.WithinGroup,
)  # fmt: skip


_TYPES = {
    DataType.Type.ARRAY, DataType.Type.BIGINT, DataType.Type.BOOLEAN, DataType.Type.CHAR, DataType.Type.DATE,
    DataType.Type.DECIMAL, DataType.Type.DOUBLE, DataType.Type.FLOAT, DataType.Type.INT, DataType.Type.INTERVAL,
    DataType.Type.SMALLINT, DataType.Type.TEXT, DataType.Type.TIME, DataType.Type.TIMESTAMP,
    DataType.Type.TIMESTAMPTZ, DataType.Type.VARCHAR, DataType.Type.BPCHAR, DataType.Type.LIST,
}  # fmt: skip


# Parser classes of functions that `lexer` has already allowed under their PostgreSQL names.
_RENAMED = {
    "ApproxQuantile", "ArrayConcat", "ArrayContains", "ArraySize", "Cast", "Ceil", "Chr", "Concat", "ConcatWs",
    "DateBin", "Explode", "ExplodingGenerateSeries", "Extract", "GenerateSeries", "GroupConcat", "JSONBObjectAgg",
    "JSONObject", "JSONObjectAgg", "JSONArray", "JSONArrayAgg", "JSONBBuildObject", "Length", "Levenshtein", "Ln",
    "LogicalAnd", "LogicalOr", "MD5", "Pad", "ParseDatetime", "StrPosition", "StrToDate", "StrToTime", "StringToArray",
    "TimeToStr", "TimestampTrunc", "ToChar", "ToNumber", "Trim", "TsOrDsToDate", "UnixToTime", "DateTrunc", "Date",
    "ArrayToString", "Left", "Right", "Substring", "StartsWith", "SplitPart", "Stuff", "JSONFormat", "ToArray",
    "RegexpReplace", "RegexpExtract", "RegexpCount", "Repeat", "Replace", "Reverse", "Translate", "TimestampFromParts",
    "DateFromParts", "MakeInterval", "Corr", "CovarPop", "CovarSamp", "Variance", "VariancePop", "StddevPop",
    "Overlay", "RegexpSplit", "PercentileCont", "PercentileDisc", "WidthBucket", "AnyValue", "ArrayAgg",
    "CurrentTimestamp", "Unicode",
}  # fmt: skip


# Allowed clauses of these nodes, as sqlglot names them. Any other (INTO, FOR UPDATE, TABLESAMPLE, ...) is refused.
_CARRIED: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Select: word_set(
        "with_ expressions from_ joins laterals where group having windows order limit offset distinct"
    ),
    exp.SetOperation: word_set("with_ this expression distinct order limit offset"),
    exp.Subquery: word_set("with_ this alias order limit offset"),
    exp.Table: word_set("this alias joins laterals ordinality"),
    exp.Join: word_set("this on using side kind method"),
    exp.Lateral: word_set("this alias ordinality"),
    exp.Unnest: word_set("expressions alias offset"),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias", "materialized"}),
    exp.Values: frozenset({"expressions", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Column: frozenset({"this", "table"}),
}


_CLAUSES = {"locks": "FOR UPDATE or FOR SHARE", "sample": "TABLESAMPLE", "kind": "SELECT AS", "hint": "a hint"}


def _check_power(exponent: exp.Expr) -> None:
    inner = exponent.this if isinstance(exponent, exp.Paren | exp.Neg) else exponent
    if not isinstance(inner, exp.Literal) or inner.is_string or abs(float(inner.this)) > MAX_EXPONENT:
        raise StatementRefused(f"the exponent of a power must be a number up to {MAX_EXPONENT}")


def check_node(node: exp.Expr) -> None:
    """Check a node of the parsed statement: raise Refused unless its kind, type or function is on the allow-list."""
    if isinstance(node, DataType):
        if node.this not in _TYPES:
            raise StatementRefused(f"the type {node.this} is not accepted")
        return
    if isinstance(node, exp.Cube) and len(node.expressions) > MAX_CUBE:
        raise StatementRefused(f"CUBE has more than {MAX_CUBE} parts")
    if isinstance(node, exp.Pow):
        _check_power(node.expression)
    if isinstance(node, exp.Anonymous):
        if str(node.this).lower() not in FUNCTIONS | TYPES | {"all"}:
            raise StatementRefused(f'the function "{node.this}" is not accepted')
        return
    if type(node) in _PLAIN:
        return
    if isinstance(node, exp.Func) and (
        type(node).__name__ in _RENAMED or any(name.lower() in FUNCTIONS for name in type(node).sql_names())
    ):
        return
    raise StatementRefused(f"{type(node).__name__} is not accepted")


def check_clauses(node: exp.Expr) -> None:
    """Check a node's clauses, such as FOR UPDATE: raise Refused unless all are on the allow-list for its kind."""
    allowed = next(keys for kind, keys in _CARRIED.items() if isinstance(node, kind))
    for key, value in node.args.items():
        if value and key not in allowed:
            if key in ("db", "catalog"):
                raise StatementRefused(f'the schema "{value.name}" is not accepted; the only table is "{VIEW}"')
            raise StatementRefused(f"{_CLAUSES.get(key, key.rstrip('_').upper())} is not accepted")
