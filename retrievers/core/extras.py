"""How an optional part is installed."""

from importlib.util import find_spec


def install_command(extra: str) -> str:
    """The command that installs an extra of `pyproject.toml`, to be run in the checkout.

    It is uv's where the environment has no pip, as those that uv makes.
    """
    return f"{'pip' if find_spec('pip') else 'uv pip'} install '.[{extra}]'"
