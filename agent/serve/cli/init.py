"""The `init` command: write a settings file to start from."""

from pathlib import Path

from agent.settings import SETTINGS_FILE, settings_template
from retrievers.core.errors import BadRequest


def write_settings_file(path: Path, *, force: bool) -> Path:
    """Write a settings file with every setting commented out at its default, and return its path.

    Args:
        path: the file, or an existing folder that gets a `signalbox.toml`.
        force: replace an existing file.
    Raises:
        BadRequest: the file exists and `force` is not given, or it cannot be written.
    """
    if path.is_dir():
        path /= SETTINGS_FILE
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(settings_template())
    except FileExistsError as error:
        raise BadRequest(f"{path} exists; --force replaces it", where="PATH") from error
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}", where="PATH") from error
    return path
