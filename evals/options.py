"""Options that several commands of `signalbox eval` share."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from retrievers.core.errors import BadRequest

Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set a setting for this run; may be repeated")
]
Split = Annotated[str, typer.Option(help="split of the questions to use; in routed form also `all`")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout and nothing else")]


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


def check_writable(path: Path | None) -> None:
    """Raise BadRequest, before the work, if its result cannot be written to the file of --out."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BadRequest(f"--out {path}: the file cannot be written", where="--out")


def write_figures(path: Path, found: Mapping[str, Any]) -> None:
    """Write JSON values to the file of --out.

    Raises:
        BadRequest: it cannot be written.
    """
    # A model may write half of a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadRequest(f"--out {path}: the file cannot be written: {error.strerror}", where="--out") from error
