"""The command that installs an optional dependency."""

import re
import shlex
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

_PROJECT_FILE = Path(__file__).parents[2] / "pyproject.toml"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of `pyproject.toml`.

    In a checkout the command names the extra: `pip install '.[adapters]'`. An installation from a wheel has no
    `pyproject.toml`, so there the command names the extra's packages. It begins with `uv pip` if the environment has no
    pip, as in environments made by uv.
    """
    wanted = [f"'.[{extra}]'"] if _PROJECT_FILE.is_file() else map(shlex.quote, _packages(extra))
    return f"{'pip' if find_spec('pip') else 'uv pip'} install {' '.join(wanted)}"


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, such as `ddgs>=9`, as the installed package declares them."""
    lines = (line.partition(";") for line in requires("signalbox-retrieval") or ())
    return [package.strip() for package, _, marker in lines if re.search(rf"""extra == ['"]{extra}['"]""", marker)]
