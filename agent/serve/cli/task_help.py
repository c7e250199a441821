"""The help of the program: its commands grouped by task."""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

TASKS: Mapping[str, tuple[str, ...]] = {
    "Getting started": ("demo", "init", "doctor", "serve"),
    "Documents": ("ingest", "sync", "collections", "delete", "jobs", "check", "reembed", "rebuild"),
    "Asking": ("retrieve", "augment", "ask", "explain", "replay", "sql", "sources", "fetch"),
    "Operating": ("mcp", "worker", "migrate", "keys", "tenants", "records"),
    "Evaluating": ("eval",),
}
"""The commands of each task, in the order in which they are shown."""


class CommandsByTask(TyperGroup):
    """A group of commands whose help shows a section per task; commands without a task come last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections."""
        assigned = {name for names in TASKS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in assigned)
        width = max(map(len, self.commands), default=0)
        for task, names in {**TASKS, "Other commands": others}.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            limit = formatter.width - 6 - width
            rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in commands]
            if rows:
                with formatter.section(task):
                    formatter.write_dl(rows)
