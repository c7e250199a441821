"""The view `documents`: what a statement of the SQL source reads, one typed column per metadata field.

It is no view in the database but the first part of every statement (`WITH documents AS (...)`), so
that its columns fit the collections of the request, and its rows are bound to them by parameters.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from retrievers.core.fields import RESERVED, Field
from retrievers.core.types import Scope
from retrievers.postgres.catalogue import filterable
from retrievers.postgres.database import Database
from retrievers.postgres.guard_words import words

# Words that PostgreSQL does not take as a column's name without quotes.
_KEYWORDS = words(
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


@dataclass(frozen=True, slots=True)
class View:
    """The view of one scope.

    Attributes:
        columns: name to type, as a statement sees them.
        names: field to column: the same, but where a field is called as a column that every document has.
        body: the SELECT behind the view; $1 the tenants, $2 the collections' numbers, $3 the tenant that asks.
    """

    columns: Mapping[str, str]
    names: Mapping[str, str]
    notes: Mapping[str, str]
    body: str

    def column(self, field: str) -> str:
        """The column of a field, quoted where that is needed."""
        return quoted_name(self.names[field])


def quoted_name(name: str) -> str:
    """A name as it stands in a statement."""
    if _PLAIN.fullmatch(name) and name not in _KEYWORDS and not name.startswith("pg_"):
        return name
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as it stands in a statement; characters that the guard does not take in quotes become chr(92)."""
    parts: list[str] = []
    for plain, characters in groupby(text, lambda character: character.isprintable() and character != "\\"):
        if plain:
            parts.append("'" + "".join(characters).replace("'", "''") + "'")
        else:
            parts += [f"chr({ord(character)})" for character in characters]
    if len(parts) == 1 and parts[0].startswith("'"):
        return parts[0]
    return "(" + " || ".join(parts if len(parts) > 1 else [*parts, "''"]) + ")"


class Views:
    """The views of scopes, kept until a collection changes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[tuple[str, int, int], ...], View] = OrderedDict()

    async def of(self, scope: Scope) -> View:
        """The view over the collections of a scope."""
        key = tuple((one.tenant, one.number, one.version) for one in scope.collections)
        if key not in self._known:
            fields = filterable(scope)
            dates = [name for name, field in fields.items() if field.item == "date"]
            own = {name for one in scope.collections for name in one.fields}
            timed: list[str] = []
            if dates:
                values = {
                    "names": dates,
                    "tenants": sorted({one.tenant for one in scope.collections}),
                    "among": [one.number for one in scope.collections],
                }
                # A date column must hold times of day when there are any: rarely, and only the data tell.
                timed = [row[0] for row in await self._database.fetch(scope.tenant, _TIMES, values)]
            self._known[key] = make_view(fields, own, timed, collation=await self._collation(scope.tenant))
            while len(self._known) > _MOST_VIEWS:
                self._known.popitem(last=False)
        return self._known[key]

    async def _collation(self, tenant: str) -> str:
        """Text is ordered by code point, as filters and Python do; where the server can, with Unicode's cases."""
        rows = await self._database.fetch(tenant, "SELECT current_setting('server_version_num')::int", {})
        return "pg_catalog.pg_c_utf8" if rows[0][0] >= 170000 else 'pg_catalog."C"'


def make_view(
    fields: Mapping[str, Field], own: Iterable[str], timed: Iterable[str] = (), *, collation: str = 'pg_catalog."C"'
) -> View:
    """The view with these fields.

    Args:
        fields: all that a filter may name.
        own: those of them that documents' own metadata has.
        timed: the date fields that hold times of day.
        collation: of its texts.
    """
    timed, own = set(timed), set(own) & set(fields)
    columns: dict[str, str] = {}
    names: dict[str, str] = {name: name for name in RESERVED}
    notes: dict[str, str] = {}
    expressions: list[str] = []

    def add(name: str, kind: str, expression: str, note: str) -> None:
        columns[name], notes[name] = kind, note
        collated = f"({expression}) COLLATE {collation}" if kind == "text" and name != "id" else expression
        expressions.append(f"{collated} AS {quoted_name(name)}")

    for name, (kind, expression, note) in _OWN_COLUMNS.items():
        if name == "id" or name not in own:
            add(name, kind, expression, note)
    for name in sorted(own):
        field = fields[name]
        # Documents are found again by their id, so this one name is never a field's.
        names[name] = "metadata.id" if name == "id" else name
        kind = _kind(field, name in timed)
        if field.separator is not None:
            # Written as one text and known as a list: people compare it as either.
            text = f"array_to_string({_expression(field, kind, collation)}, '{_quoted(field.separator.strip())} ')"
            add(name, "text", text, field.description)
            names[name] = _free(f"{name}_list", fields)
            add(names[name], kind, _expression(field, kind, collation), f"the members of {name}")
        else:
            add(names[name], kind, _expression(field, kind, collation), field.description)
    body = f"""SELECT {", ".join(expressions)}
    FROM signalbox.document d
    WHERE d.tenant = ANY ($1) AND d.collection = ANY ($2) AND (d.tenant = $3 OR d.public)
      AND (d.expires_at IS NULL OR d.expires_at > now())"""  # noqa: S608
    return View(columns, names, notes, body)


def _quoted(text: str) -> str:
    """What stands between the quotes of a literal that PostgreSQL alone reads."""
    return text.replace("'", "''")


def _free(name: str, taken: Mapping[str, Field]) -> str:
    while name in taken or name in _OWN_COLUMNS:
        name += "_"
    return name


def _kind(field: Field, timed: bool) -> str:
    item = {"string": "text", "number": "numeric", "boolean": "boolean", "date": "timestamp" if timed else "date"}
    return item[field.item] + ("[]" if field.type == "list" else "")


def _expression(field: Field, kind: str, collation: str) -> str:
    """The column's value out of the document's normal form; NULL where there is none."""
    key = f"d.fields -> '{_quoted(field.name)}'"
    item = kind.removesuffix("[]")
    if kind.endswith("[]"):
        value = {"text": f"(item #>> '{{}}') COLLATE {collation}"}.get(item, f"(item #>> '{{}}')::{item}")
        return f"nullif(ARRAY(SELECT {value} FROM jsonb_path_query({key}, '$[*]') AS item), '{{}}')"  # noqa: S608
    if item == "text":
        return f"d.fields ->> '{_quoted(field.name)}'"
    held = {"numeric": "number", "boolean": "boolean"}.get(item, "string")
    return f"CASE jsonb_typeof({key}) WHEN '{held}' THEN ({key} #>> '{{}}')::{item} END"


def describe_columns(view: View, values: Mapping[str, Iterable[str]] | None = None) -> str:
    """The view for a model that writes statements: a line per column.

    Args:
        values: commonest values of a column, shown beside it.
    """
    lines = ["documents: one row per document"]
    for name, kind in view.columns.items():
        note = view.notes[name]
        examples = ", ".join(f"'{_quoted(one)}'" for one in (values or {}).get(name, ()))
        tail = "; ".join(part for part in (note, f"values such as {examples}" if examples else "") if part)
        lines.append(f"  {quoted_name(name)} {kind}" + (f"  -- {tail}" if tail else ""))
    return "\n".join(lines)
