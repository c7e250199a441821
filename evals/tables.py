"""Print tables on the terminal."""

from collections.abc import Sequence


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, first column left-aligned, others right-aligned; no cell is cut."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from agent.serve.cli.output import terminal_text

    console = Console()
    # Keep the full width in a file or a pipe: a cut figure is worse than a long line.
    if not console.is_terminal:
        console = Console(width=200)
    table = Table(title=escape(title), title_justify="left", box=SIMPLE)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(terminal_text(cell)) for cell in row))
    console.print(table)
