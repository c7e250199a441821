"""The setting PROMPT_FIELDS: which metadata of a passage a prompt shows, per collection or for all."""

from collections.abc import Collection as Collected
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from retrievers.core.errors import BadDocument
from retrievers.core.metadata import flatten_metadata
from retrievers.core.types import Chunk

FORM = (
    "FIELD,FIELD or COLLECTION=FIELD,FIELD separated by semicolons; COLLECTION= shows none, * is any other collection"
)
MOST = 10
"""Maximum number of fields per passage."""
LONGEST = 80
"""Maximum number of characters per value; longer values are cut."""
_ALL = "*"


@lru_cache(maxsize=16)
def parse_prompt_fields(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the fields to show by collection; {} for an empty setting.

    "*" stands for all other collections: "title; memos=author,date" -> {"*": ("title",), "memos": ("author", "date")}.

    Raises:
        ValueError: malformed.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        collection, sign, names = part.rpartition("=")
        collection = collection.strip() if sign else _ALL
        fields = tuple(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
        if not collection:
            raise ValueError(f'"{part[:80]}" names no collection; write {FORM}')
        if collection in groups:
            raise ValueError(f'the collection "{collection[:80]}" occurs twice; remove one of them')
        if len(fields) > MOST:
            raise ValueError(f'"{collection[:80]}" has {len(fields)} fields; a prompt shows at most {MOST}')
        groups[collection] = fields
    return groups


def keep_prompt_fields(chunk: Chunk, fields: Mapping[str, tuple[str, ...]]) -> Chunk:
    """Return the chunk with only the configured metadata, in the configured order.

    It is unchanged if the setting has neither its collection nor "*".

    Args:
        fields: the setting, as `parse_prompt_fields` returns it.
    """
    wanted = fields.get(chunk.id.collection, fields.get(_ALL))
    if wanted is None:
        return chunk
    try:
        known = {**flatten_metadata(chunk.metadata), **chunk.metadata}
    except BadDocument:
        known = dict(
            chunk.metadata
        )  # metadata of an external source may be nested more deeply than `flatten_metadata` allows
    return replace(chunk, metadata={name: _cut(known[name]) for name in wanted if name in known})


def unknown_names(
    wanted: Mapping[str, tuple[str, ...]], fields: Mapping[str, Collected[str]], elsewhere: Collected[str]
) -> list[str]:
    """Return the names in the setting that do not exist: collections ("memos") and fields ("memos=author").

    A field under "*" is returned without a prefix, if none of the other collections has it.

    Args:
        wanted: the setting, as `parse_prompt_fields` returns it.
        fields: names of the existing fields by collection; nested ones with dots ("author.name").
        elsewhere: names of sources outside the database. Their fields are unknown, so they are not checked.
    """
    found = []
    for collection, names in wanted.items():
        if collection == _ALL:
            among = [one for name, one in fields.items() if name not in wanted]
            if not among:
                continue
        elif collection in fields:
            among = [fields[collection]]
        elif collection in elsewhere:
            continue
        else:
            found.append(collection)
            continue
        known = {name for one in among for name in one}
        prefix = "" if collection == _ALL else f"{collection}="
        found += [prefix + name for name in names
                  if name not in known and not any(one.startswith(f"{name}.") for one in known)]  # fmt: skip
    return found


def _cut(value: object) -> object:
    """Return the value, or its start as text if it is longer than `LONGEST`: prompts leave out longer values."""
    if isinstance(value, dict):
        return value
    items = value if isinstance(value, list) else [value]
    text = ", ".join(" ".join(str(item).split()) for item in items if item not in (None, ""))
    return value if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
