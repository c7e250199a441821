"""Load the settings in force from the environment, `signalbox.toml` and the command line."""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from agent.errors import BadSetting, to_bad_request
from agent.options.named_sources import FORM, NamedSource, clean_api_key
from agent.settings.schema import SETTINGS_FILE, Settings
from retrievers.core.errors import join_names
from retrievers.ingest.readers.text_cleaning import plain_line

PREFIX = "SIGNALBOX_"
_LONGEST_NAME = 60


def unknown_variables() -> tuple[str, ...]:
    """Return a message for each environment variable SIGNALBOX_* that is not a setting; it may be misspelt.

    Variables SIGNALBOX_TEST_* and those that hold the API key of a source are not reported.
    """
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    ours = (key for key in os.environ if key.startswith(PREFIX) and not key.startswith(f"{PREFIX}TEST_"))
    if not (found := sorted(key for key in ours if key not in names)):
        return ()
    said, keys = [], _api_key_variables(Path.cwd() / SETTINGS_FILE)
    for name in found:
        if name not in keys:
            near = get_close_matches(name.removeprefix(PREFIX).lower(), Settings.model_fields, 1)
            meant = f" (did you mean {PREFIX}{near[0].upper()}?)" if near else ""
            said.append(f"the environment variable {plain_line(name, _LONGEST_NAME)} is not a setting{meant}")
    return tuple(said)


def _api_key_variables(path: Path) -> set[str]:
    """Return the names of the environment variables that hold API keys of sources (`api_key_env` in the file).

    Empty if the file cannot be read: `load_settings` reports that.
    """
    try:
        sources = _read_file(path).get("sources") if path.exists() else None
    except BadSetting:
        return set()
    tables = sources.values() if isinstance(sources, Mapping) else ()
    named = [one.api_key_env if isinstance(one, NamedSource) else dict(one).get("api_key_env")
             for one in tables if isinstance(one, Mapping | NamedSource)]  # fmt: skip
    return {str(name) for name in named if name}


def is_span_export_configured() -> bool:
    """Return whether OpenTelemetry's environment variables set an endpoint for spans and do not disable them."""
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return any(os.environ.get(name) for name in addresses) and not off and exporter != "none"


def load_settings(given: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> Settings:
    """Load the settings in force.

    Args:
        given: values that override the environment and the file.
        folder: folder of `signalbox.toml`; None means the working folder.
    Raises:
        BadSetting: a key is unknown or a value is not valid; the error says where it came from.
    """
    path = (folder or Path.cwd()) / SETTINGS_FILE
    environment = {key[len(PREFIX) :].lower(): value for key, value in os.environ.items() if key.startswith(PREFIX)}
    # Ignore unknown variables, which may belong to another version; an unknown key in the file is an error.
    environment = {key: value for key, value in environment.items() if key in Settings.model_fields}
    command = {key.lower(): value for key, value in (given or {}).items()}
    # Check file, environment and command line each by itself, so that overridden values are checked too.
    values = _read_file(path) if path.exists() else {}
    # Settings of the environment and of the command line may name sources of the file.
    named = {"sources": values["sources"]} if "sources" in values else {}
    values |= _validated_values(environment, "the environment", lambda: Settings.model_validate(named | environment))
    values |= _validated_values(command, "the command line", lambda: Settings.model_validate(named | command))
    if "sources" in values:
        values["sources"] = {name: _with_api_key(name, one, path) for name, one in values["sources"].items()}
    # Values that are valid each by itself may contradict each other.
    return _validated(str(path), lambda: Settings.model_validate(values))


def _with_api_key(name: str, source: NamedSource, path: Path) -> NamedSource:
    """Return the source with its API key read from the variable `api_key_env`; unchanged if it names no variable."""
    if source.api_key_env is None:
        return source
    wrong = "is not set"
    try:
        key = clean_api_key(os.environ.get(source.api_key_env))
    except ValueError:
        key, wrong = None, "contains a character that no key has"
    if key is None:
        where = f"sources.{name}.api_key_env"
        raise BadSetting(f"setting {where} ({path}): the variable {source.api_key_env} {wrong}", where=where)
    return source.model_copy(update={"api_key": key, "api_key_env": None})


def _read_file(path: Path) -> dict[str, Any]:
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Notepad adds a byte order mark
        given = {key.lower(): value for key, value in stated.items()}
        # Strict validation of JSON accepts a text for a path, but not for a number. A date of TOML becomes [[]], which
        # no setting accepts, so it is reported as invalid.
        text = json.dumps(given, default=lambda date: [[]])
        from_json(text)  # raises if tables are nested too deeply
    except (OSError, ValueError, RecursionError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from error
    if len(given) < len(stated):
        twice = next(key for key in stated if sum(key.lower() == other.lower() for other in stated) > 1)
        raise BadSetting(
            f'the setting "{twice.upper()}" occurs twice ({path}); remove one of them', where=twice.lower()
        )
    return _validated_values(given, str(path), lambda: Settings.model_validate_json(text, strict=True))


def _validated_values(given: Mapping[str, Any], source: str, validate: Callable[[], Settings]) -> dict[str, Any]:
    """Return the validated values of the given settings.

    Args:
        given: the settings by name; `validate` validates the same values.
        source: where they were set, for errors, such as "the environment".
    """
    unknown = sorted(set(given) - set(Settings.model_fields))
    if unknown:
        known = join_names((key.upper() for key in Settings.model_fields), len(Settings.model_fields))
        name = plain_line(unknown[0].upper(), _LONGEST_NAME)
        raise BadSetting(f'there is no setting "{name}" ({source}); there are: {known}', where=unknown[0])
    settings = _validated(source, validate)
    return {key: getattr(settings, key) for key in given}


def _validated(source: str, validate: Callable[[], Settings]) -> Settings:
    try:
        return validate()
    except ValidationError as error:
        problem = to_bad_request(error)
        key, _, rest = problem.where.partition(".")
        reason = str(problem).removeprefix(f"{problem.where}: ")
        if key == "sources" and rest:
            where, reason = _source_error(rest, reason)
            raise BadSetting(f"setting {where} ({source}): {reason}", where=where) from None
        if key == "request":  # it concerns several settings together
            raise BadSetting(f"settings ({source}): {reason}") from None
        raise BadSetting(f"setting {key.upper()} ({source}): {reason}", where=key) from None


def _source_error(rest: str, reason: str) -> tuple[str, str]:
    """Return the path of an error in the tables `[sources.NAME]`, such as "sources.docs.path", and its message.

    Args:
        rest: pydantic's path below "sources".
    """
    name, _, key = plain_line(rest, _LONGEST_NAME).partition(".")
    if key == "[key]":  # pydantic's name for an invalid key
        return f"sources.{name}", reason if reason.startswith('"') else f"the name of a source is {FORM}"
    return ".".join(filter(None, ("sources", name, key))), reason
