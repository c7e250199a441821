"""The setting PROMPT_FIELDS: which metadata a prompt shows of a passage, for all collections and for single ones."""

from collections.abc import Collection as Collected
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from retrievers.core.errors import BadDocument
from retrievers.core.fields import flatten
from retrievers.core.types import Chunk

FORM = (
    "FIELD,FIELD or COLLECTION=FIELD,FIELD between semicolons; nothing behind = shows none, * is every other collection"
)
MOST = 10
"""Fields of one passage."""
LONGEST = 80
"""Characters of a value; what is longer is cut."""
_ALL = "*"


@lru_cache(maxsize=16)
def parse(text: str) -> Mapping[str, tuple[str, ...]]:
    """The fields by collection, those of every other collection under "*"; empty where the setting is.

    Raises:
        ValueError: it is not of that form.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        collection, sign, names = part.rpartition("=")
        collection = collection.strip() if sign else _ALL
        fields = tuple(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
        if not collection:
            raise ValueError(f'"{part[:80]}" names no collection; it is {FORM}')
        if collection in groups:
            raise ValueError(f'the collection "{collection[:80]}" is there twice')
        if len(fields) > MOST:
            raise ValueError(f'"{collection[:80]}" has {len(fields)} fields; a prompt shows at most {MOST}')
        groups[collection] = fields
    return groups


def shown(chunk: Chunk, fields: Mapping[str, tuple[str, ...]]) -> Chunk:
    """The chunk with the metadata that the setting names, in its order; with all of it where it says nothing."""
    wanted = fields.get(chunk.id.collection, fields.get(_ALL))
    if wanted is None:
        return chunk
    try:
        known = {**flatten(chunk.metadata), **chunk.metadata}
    except BadDocument:
        known = dict(chunk.metadata)  # of a source outside
    return replace(chunk, metadata={name: _cut(known[name]) for name in wanted if name in known})


def unknown(
    wanted: Mapping[str, tuple[str, ...]], fields: Mapping[str, Collected[str]], elsewhere: Collected[str]
) -> list[str]:
    """What the setting names and no document has: fields, each behind its collection, or whole collections.

    Args:
        fields: of the collections, nested ones with dots.
        elsewhere: names of sources that hold documents themselves, of which no fields are known.
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
    """A value that a prompt has room for: it leaves out longer ones."""
    if isinstance(value, dict):
        return value
    items = value if isinstance(value, list) else [value]
    text = ", ".join(" ".join(str(item).split()) for item in items if item not in (None, ""))
    return value if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
