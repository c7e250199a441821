"""Options that several commands of `signalbox eval` share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from retrievers.core.errors import BadRequest

Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set a setting for this run; may be repeated")
]


def settings_of(changes: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of --set as text by key.

    Raises:
        BadRequest: a change has another form.
    """
    given = {}
    for change in changes or ():
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise BadRequest(f'--set needs KEY=VALUE, for example FUSION=rrf, not "{change[:80]}"', where="--set")
        given[key.strip()] = value
    return given
