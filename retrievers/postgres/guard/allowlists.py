"""Allow-lists of the SQL guard: the words, functions, types and operators of an analytic SELECT.

If a harmless name is missing, a user must rephrase a statement. If a harmful name is listed, the database is at risk.
"""


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text, split at whitespace. The allow-lists below are written with it."""
    return frozenset(text.split())


# Words that are neither functions nor names. None of them reads, writes or locks anything by itself.
KEYWORDS = word_set(
    """
    select distinct on from where group by having order asc desc nulls first last limit offset fetch next row rows
    only ties with as materialized union all intersect except join inner left right full outer cross lateral natural
    using and or not in is isnull notnull null true false unknown between symmetric like ilike similar to escape
    case when then else end exists any some array over partition range groups unbounded preceding following current
    exclude others window filter within ordinality rollup cube grouping sets at zone cast for both leading trailing
    values interval overlaps placing current_date current_timestamp localtimestamp
    """
)

UNITS = word_set(
    """
    century centuries day days decade decades dow doy epoch hour hours isodow isoyear microseconds millennium
    milliseconds minute minutes mins month months quarter quarters second seconds secs week weeks year years
    """
)

TYPES = word_set(
    """
    bigint bool boolean char character date decimal double float float4 float8 int int2 int4 int8 integer interval
    numeric precision real smallint text time timestamp timestamptz varchar varying without
    """
)

# Keywords that may precede a bracket without forming a call.
BEFORE_BRACKET = word_set(
    """
    all and any array as between by case cube distinct else except exists filter from group having ilike in
    intersect is join lateral like limit materialized not offset on or over rollup select sets similar some then to
    union using values when where within
    """
)

AGGREGATE_FUNCTIONS = word_set(
    """
    any_value array_agg avg bit_and bit_or bool_and bool_or corr count covar_pop covar_samp every json_agg
    json_object_agg jsonb_agg jsonb_object_agg max min mode percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop stddev_samp string_agg
    sum var_pop var_samp variance
    """
)

WINDOW_FUNCTIONS = word_set(
    """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    """
)

SCALAR_FUNCTIONS = word_set(
    """
    abs age array_append array_cat array_length array_lower array_ndims array_position array_positions array_prepend
    array_remove array_replace array_to_string array_upper ascii bit_length btrim cardinality cbrt ceil ceiling
    char_length character_length chr coalesce concat concat_ws date_bin date_part date_trunc div exp extract
    floor format greatest grouping initcap isfinite json_build_array json_build_object jsonb_build_array
    jsonb_build_object justify_days justify_hours justify_interval least left length ln log log10 lower lpad ltrim
    make_date make_interval make_timestamp md5 min_scale mod now nullif num_nonnulls num_nulls octet_length overlay pi
    position power regexp_count regexp_like regexp_match regexp_replace regexp_split_to_array regexp_substr repeat
    replace reverse right
    round row rpad rtrim scale sign split_part sqrt starts_with statement_timestamp string_to_array strpos substr
    substring timezone to_char to_date to_number to_timestamp transaction_timestamp translate trim trim_array
    trim_scale trunc upper width_bucket
    """
)

# Functions that can take the place of a table: they return rows.
ROW_FUNCTIONS = frozenset(
    {"unnest", "generate_series", "generate_subscripts", "regexp_matches", "regexp_split_to_table"}
)

FUNCTIONS = AGGREGATE_FUNCTIONS | WINDOW_FUNCTIONS | SCALAR_FUNCTIONS | ROW_FUNCTIONS | {"cast"}

REGEX_FUNCTIONS = word_set(
    """
    regexp_count regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
    regexp_substr
    """
)

# Words that PostgreSQL reads as calls without brackets (`current_user`) or as types that look up database objects
# (`regclass`). They are never accepted as names, not even as names that the statement defines.
NEVER_NAMES = word_set(
    """
    user current_user session_user system_user current_role current_catalog current_schema current_time localtime
    regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc regprocedure regrole
    regtype oid xid xid8 cid tid ctid xmin xmax cmin cmax tableoid recursive operator collate
    """
)

OPERATORS = word_set(
    """
    + - * / % ^ < > = <= >= <> != => || && @> <@ ~ ~* !~ !~* ~~ ~~* !~~ !~~*
    """
)
