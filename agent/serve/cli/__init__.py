"""The command line: arguments and settings go in; text or JSON on stdout, notes on stderr and an exit code come out."""

import signal
import sys
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """See `agent.serve.cli.program.run`."""
    from agent.serve.cli import program

    return program.run(arguments)


def main() -> None:
    """Entry point of the console script."""
    # Ctrl-C while the program is still loading ends it without a traceback.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # in the background of a shell, the signal is ignored
        signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))
    from agent.serve.cli import program

    signal.signal(signal.SIGINT, before)
    program.main()
