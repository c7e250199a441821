"""Draw the sections of a decision record on the terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agent.serve.cli.output import terminal_text

Json = dict[str, Any]

_WIDTH = 150
"""Output width in columns without a terminal; wide, because a wrapped figure is worse than a long line."""
MOST_CELL = 60


class Sections:
    """Prints sections one below the other; text is never interpreted as markup."""

    def __init__(self, console: Console | None) -> None:
        drawn_on = console or Console(highlight=False, markup=False, emoji=False)
        if console is None and not drawn_on.is_terminal:
            drawn_on = Console(highlight=False, markup=False, emoji=False, width=_WIDTH)
        self._console = drawn_on

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and values without a title."""
        grid = self.grid(rows)
        if grid is not None:
            self._draw(grid)

    def section(self, title: str, *parts: Table | Text | None) -> None:
        """Print a title and the parts that are not None; nothing if all are None."""
        shown = [Padding(part, (0, 0, 0, 2)) for part in parts if part is not None]
        if shown:
            self._draw(Text(""), cell(title, "bold"), *shown)

    def _draw(self, *parts: Table | Text | Padding) -> None:
        with self._console.capture() as drawn:
            for part in parts:
                self._console.print(part)
        # Rich pads every line with blanks, which disturb copying and grep.
        for line in drawn.get().splitlines():
            print(line.rstrip(), file=self._console.file)

    def grid(self, rows: Iterable[tuple[str, str]]) -> Table | None:
        """Return a table of names and values; None if there are no rows."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=False, max_width=MOST_CELL)
        grid.add_column(overflow="fold")
        for name, said in rows:
            grid.add_row(cell(name, "cyan"), cell(said))
        return grid if grid.row_count else None


def cell(said: object, style: str = "") -> Text:
    """Return any text, possibly a document's, as one line without terminal control characters."""
    return Text(" ".join(terminal_text(str(said)).split()), style=style)


def shorten(said: object, most: int = MOST_CELL) -> str:
    """Return any text as one line of at most `most` characters."""
    text = " ".join(terminal_text(str(said)).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table.

    Args:
        right: the columns aligned to the right.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="cyan")
    for column in columns:
        table.add_column(cell(column), justify="right" if column in right else "left", overflow="fold")
    return table


def score_text(score: float | None, rank: int | None) -> str:
    """Return a score and, if given, its rank, such as "0.712 #3"; a dash if there is no score."""
    return "-" if score is None else f"{score:.3f}" + (f" #{rank}" if rank else "")


def count_text(many: Sequence[Any] | int, name: str, plural: str = "s") -> str:
    """Return a count with its noun, such as "2 hits"."""
    count = many if isinstance(many, int) else len(many)
    return f"{count} {name}{'' if count == 1 else plural}"


def list_text(value: Any) -> str:
    """Return a list as text, joined by commas."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
