"""The command line: arguments and settings go in; text or JSON on stdout, notes on stderr and an exit code come out."""

from agent.serve.cli.program import main, run

__all__ = ["main", "run"]
