"""The view `documents` that statements of the SQL source read, with one typed column per metadata field.

It is not a view in the database, but a WITH clause before every statement (`WITH documents AS (...)`). So its columns
and rows can be those of the collections of one request.

PostgreSQL returns at most 1,664 columns and cuts names at 63 bytes. If there are too many fields, only the most common
ones are always columns (also in `*`), and the others are added if a statement names them. Longer names are replaced by
short ones before a statement runs, and put back in its result.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from retrievers.core.errors import BadRequest
from retrievers.core.metadata import RESERVED, Field
from retrievers.core.types import PLATFORM, Scope
from retrievers.postgres.catalogue.catalogue import filterable_fields
from retrievers.postgres.connections.database import Database
from retrievers.postgres.guard.allowlists import NEVER_NAMES, word_set

# Words that PostgreSQL does not accept as column names without quotes.
_KEYWORDS = word_set(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
    returning right select session_user similar some symmetric system_user table tablesample then to trailing true
    union unique user using variadic verbose when where window with
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping int integer
    interval least national nchar none normalize nullif numeric out overlay position precision real row setof smallint
    substring time timestamp treat trim values varchar xmlattributes
    """
)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_MOST_VIEWS = 256
# A list that is written as text has two columns, and a statement may name some hundred additional fields.
_MOST_FIELDS = 500
_MOST_NAME_BYTES = 63
_NAME = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
      | "(?P<quoted>(?:[^"]|"")+)"
      | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)""",
    re.VERBOSE,
)

_OWN_COLUMNS = {
    "id": ("text", "d.id", "the document's id"),
    "title": ("text", "d.fields ->> 'title'", "its title"),
    "url": ("text", "d.url", "its address"),
    "language": ("text", "d.fields ->> 'language'", "ISO 639-1 code of its text"),
    "public": ("boolean", "d.public", "whether everyone may read it"),
    "created_at": (
        "timestamp",
        "d.created_at AT TIME ZONE 'UTC'",
        "when it was stored here, which is not its own date",
    ),
    "updated_at": ("timestamp", "d.updated_at AT TIME ZONE 'UTC'", "when it was changed here last"),
}
_TIMES = """
    SELECT name FROM unnest(%(names)s::text[]) AS name
    WHERE EXISTS (
        SELECT FROM signalbox.document d, jsonb_path_query(d.fields -> name, '$[*]') AS item
        WHERE d.tenant = ANY (%(tenants)s) AND d.collection = ANY (%(among)s) AND length(item #>> '{}') > 10)
"""


_COUNTS = """
    SELECT field FROM signalbox.field_count
    WHERE tenant = ANY (%(tenants)s) AND collection = ANY (%(among)s) AND field = ANY (%(own)s)
    GROUP BY field ORDER BY sum(documents) DESC, field COLLATE "C" LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class DocumentsView:
    """The columns of the view `documents` for one scope.

    Attributes:
        columns: column name to SQL type, as a statement sees them.
        names: field to column name. The two differ for a field named `id`, and for lists written as one text.
        notes: column to its description.
        values: column to its SQL expression.
        rare: columns that exist only if a statement names them.
    """

    columns: Mapping[str, str]
    names: Mapping[str, str]
    notes: Mapping[str, str]
    values: Mapping[str, str]
    rare: frozenset[str] = frozenset()

    def column(self, field: str) -> str:
        """Return the name of a field's column, in double quotes if necessary."""
        return quoted_name(self._name(field))

    def kind(self, field: str) -> str:
        """Return the SQL type of a field's column, such as "text[]"."""
        return self.columns[self._name(field)]

    def body(self, named: Iterable[str] = ()) -> str:
        """Return the SELECT behind the view. Its parameters: $1 tenants, $2 collection numbers, $3 asking tenant.

        Args:
            named: names that occur in the statement. Columns in `rare` are left out unless their names are among these.
        """
        wanted = [name for name in self.columns if name not in self.rare]
        wanted += sorted(self.rare.intersection(named))
        expressions = (f"{self.values[name]} AS {quoted_name(short_name(name))}" for name in wanted)
        return f"""SELECT {", ".join(expressions)}
    FROM signalbox.document d
    WHERE d.tenant = ANY ($1) AND d.collection = ANY ($2) AND (d.tenant = $3 OR d.public)
      AND d.enabled AND (d.expires_at IS NULL OR d.expires_at > now())"""  # noqa: S608

    def _name(self, field: str) -> str:
        if self.names.get(field) not in self.columns:
            raise BadRequest(f'the field "{field}" has no column in SQL: give it another name', where="aggregate")
        return self.names[field]


def short_name(name: str) -> str:
    """Return the name in the form sent to PostgreSQL: a long name becomes its beginning and its digest."""
    written = name.encode(errors="replace")
    if len(written) <= _MOST_NAME_BYTES:
        return name
    digest = hashlib.sha256(written).hexdigest()[:12]
    return f"{written[: _MOST_NAME_BYTES - 13].decode(errors='ignore')}~{digest}"


def with_short_names(statement: str) -> tuple[str, frozenset[str]]:
    """Replace long names in the statement by short ones.

    Returns:
        (statement with short names, all words of the original statement that may be names, even if they are keywords).
    """
    names: set[str] = set()

    def written(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found[0]
        # PostgreSQL folds only ASCII letters to lower case.
        small = "".join(one.lower() if one.isascii() else one for one in found["word"] or "")
        name = small or found["quoted"].replace('""', '"')
        names.add(name)
        short = short_name(name)
        return found[0] if short == name else '"' + short.replace('"', '""') + '"'

    return _NAME.sub(written, statement), frozenset(names)


def quoted_name(name: str) -> str:
    """Return a name as it is written in a statement: in double quotes unless PostgreSQL reads it correctly without."""
    if _PLAIN.fullmatch(name) and name not in _KEYWORDS | NEVER_NAMES and not name.startswith("pg_"):
        return name
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return a text as an SQL expression: `'it''s'`.

    Characters that the guard refuses in quotes are written as calls: `('a' || chr(92))` for a text with a backslash.
    """
    parts: list[str] = []
    for plain, characters in groupby(text, lambda character: character.isprintable() and character != "\\"):
        if plain:
            parts.append("'" + "".join(characters).replace("'", "''") + "'")
        else:
            parts += [f"chr({ord(character)})" for character in characters]
    if len(parts) == 1 and parts[0].startswith("'"):
        return parts[0]
    return "(" + " || ".join(parts if len(parts) > 1 else [*parts, "''"]) + ")"


class DocumentsViews:
    """Builds the view `documents` of each scope, and caches it until a collection changes."""

    def __init__(self, database: Database) -> None:
        self._reads = database.reads
        self._known: OrderedDict[tuple[Hashable, ...], DocumentsView] = OrderedDict()

    async def of(self, scope: Scope) -> DocumentsView:
        """Return the view over the collections of a scope."""
        # The platform sees more of its own collections than other tenants do.
        key = (
            scope.tenant == PLATFORM,
            *((one.tenant, one.number, one.version, one.parts) for one in scope.collections),
        )
        if key not in self._known:
            fields = filterable_fields(replace(scope, external_collections=()))
            dates = [name for name, field in fields.items() if field.item == "date"]
            own = {name for one in scope.collections for name in one.fields}
            timed: list[str] = []
            among: dict[str, Any] = {
                "tenants": sorted({one.tenant for one in scope.collections}),
                "among": [one.number for one in scope.collections],
            }
            if dates:
                # A date column needs the type timestamp if any value has a time of day, which only the data tell.
                values = {**among, "names": dates}
                timed = [row[0] for row in await self._reads.fetch(scope.viewer, _TIMES, values)]
            rare: set[str] = set()
            if len(own) > _MOST_FIELDS:
                counted = [*among["among"], *(part for one in scope.collections for part, _ in one.parts)]
                values = {**among, "among": counted, "own": sorted(own), "most": _MOST_FIELDS}
                rows = await self._reads.fetch(scope.viewer, _COUNTS, values)
                rare = own - {row[0] for row in rows}
            collation = await self._collation(scope.tenant)
            view = make_view(fields, own, timed, rare, collation=collation)
            if not self._reads.is_settled(key):
                return view
            self._known[key] = view
            while len(self._known) > _MOST_VIEWS:
                self._known.popitem(last=False)
        return self._known[key]

    async def _collation(self, tenant: str) -> str:
        """Return the name of a collation that compares texts by code point, as filters and Python do.

        From PostgreSQL 17 on, lower() and upper() then also convert non-ASCII letters.
        """
        rows = await self._reads.fetch(tenant, "SELECT current_setting('server_version_num')::int", {})
        return "pg_catalog.pg_c_utf8" if rows[0][0] >= 170000 else 'pg_catalog."C"'


def make_view(
    fields: Mapping[str, Field],
    own: Iterable[str],
    timed: Iterable[str] = (),
    rare: Iterable[str] = (),
    *,
    collation: str = 'pg_catalog."C"',
) -> DocumentsView:
    """Build the view of a scope with these fields.

    Args:
        fields: all fields that a filter may name, by name.
        own: the fields among them that occur in documents' metadata. A field whose name cannot be a column name gets no
            column.
        timed: date fields whose values include times of day.
        rare: fields whose columns exist only if a statement names them.
        collation: collation of text columns.
    """
    timed, rare = set(timed), set(rare)
    short = {short_name(name) for name in fields if short_name(name) != name}
    own = {name for name in own if name in fields and name.strip() and name not in short}
    columns: dict[str, str] = {}
    names: dict[str, str] = {name: name for name in RESERVED}
    notes: dict[str, str] = {}
    values: dict[str, str] = {}
    seldom: set[str] = set()

    def add(name: str, kind: str, expression: str, note: str) -> None:
        columns[name], notes[name] = kind, note
        values[name] = f"({expression}) COLLATE {collation}" if kind == "text" and name != "id" else expression

    for name, (kind, expression, note) in _OWN_COLUMNS.items():
        if name == "id" or name not in own:
            add(name, kind, expression, note)
    for name in sorted(own):
        field = fields[name]
        # A statement finds documents by the column id, so this name is never a field's.
        names[name] = _free("metadata.id", fields) if name == "id" else name
        kind = _kind(field, name in timed)
        if field.separator is not None:
            # A list that is written as one text gets two columns, since users compare it with texts and as a list.
            text = f"array_to_string({_expression(field, kind, collation)}, '{_quoted(field.separator.strip())} ')"
            add(name, "text", text, field.description)
            names[name] = _free(f"{name}_list", fields)
            add(names[name], kind, _expression(field, kind, collation), f"the members of {name}")
        else:
            add(names[name], kind, _expression(field, kind, collation), field.description)
        if name in rare:
            seldom |= {names[name], name} if field.separator is not None else {names[name]}
    return DocumentsView(columns, names, notes, values, frozenset(seldom))


def _quoted(text: str) -> str:
    """Double the quotes of a text, to put it into an SQL literal that the guard does not check."""
    return text.replace("'", "''")


def _free(name: str, taken: Mapping[str, Field]) -> str:
    while name in taken or name in _OWN_COLUMNS:
        name += "_"
    return name


def _kind(field: Field, timed: bool) -> str:
    item = {"string": "text", "number": "numeric", "boolean": "boolean", "date": "timestamp" if timed else "date"}
    return item[field.item] + ("[]" if field.type == "list" else "")


def _expression(field: Field, kind: str, collation: str) -> str:
    """Return the SQL expression that reads a field from the stored normal form; its value is NULL without a value.

    Args:
        kind: SQL type of the column.
    """
    key = f"d.fields -> '{_quoted(field.name)}'"
    item = kind.removesuffix("[]")
    if kind.endswith("[]"):
        value = {"text": f"(item #>> '{{}}') COLLATE {collation}"}.get(item, f"(item #>> '{{}}')::{item}")
        return f"nullif(ARRAY(SELECT {value} FROM jsonb_path_query({key}, '$[*]') AS item), '{{}}')"  # noqa: S608
    if item == "text":
        return f"d.fields ->> '{_quoted(field.name)}'"
    held = {"numeric": "number", "boolean": "boolean"}.get(item, "string")
    return f"CASE jsonb_typeof({key}) WHEN '{held}' THEN ({key} #>> '{{}}')::{item} END"


def describe_columns(view: DocumentsView, values: Mapping[str, Iterable[str]] | None = None) -> str:
    """Describe the view for a model that writes statements, one line per column.

    Args:
        values: column name to common values, which are shown beside it.
    """
    lines = ["documents: one row per document"]
    for name, kind in view.columns.items():
        note = view.notes[name]
        examples = ", ".join(f"'{_quoted(one)}'" for one in (values or {}).get(name, ()))
        tail = "; ".join(part for part in (note, f"values such as {examples}" if examples else "") if part)
        lines.append(f"  {quoted_name(name)} {kind}" + (f"  -- {tail}" if tail else ""))
    return "\n".join(lines)
