"""The command that installs an optional dependency."""

from importlib.util import find_spec


def install_command(extra: str) -> str:
    """Return the command that installs an extra of `pyproject.toml`, to be run in the checkout.

    It uses `uv pip` if the environment has no pip, as environments made by uv do not.
    """
    return f"{'pip' if find_spec('pip') else 'uv pip'} install '.[{extra}]'"
