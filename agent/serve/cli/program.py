"""The program `signalbox`: its commands, and what it prints when one fails.

Each command imports the heavy modules it needs itself, so that `signalbox --help` is quick.
"""

import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from agent.serve.cli.commands import documents, inspection, keys, operations, questions, tenants
from agent.serve.cli.task_help import CommandsByTask
from agent.serve.exit_codes import BAD_INPUT, DONE, error_line, exit_code
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.readers.text_cleaning import one_line

_INTERRUPTED = 130

_COMPLETION = "_SIGNALBOX_COMPLETE"
"""The variable by which a shell asks for completions."""

app = typer.Typer(
    name="signalbox",
    cls=CommandsByTask,
    help="One question in, one cited prompt out: retrieval over documents with metadata, on stock PostgreSQL.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"signalbox {version('signalbox-retrieval')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="show the version", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


for command in (
    documents.ingest,
    documents.sync,
    questions.retrieve,
    questions.augment,
    questions.ask,
    questions.explain,
    questions.replay,
    inspection.collections,
    inspection.sources,
    documents.delete,
    documents.jobs,
    questions.records,
    documents.reembed,
    documents.rebuild,
    documents.check,
    inspection.sql,
    inspection.fetch,
    operations.mcp,
    operations.serve,
    operations.worker,
    operations.migrate,
    operations.init,
    operations.doctor,
):
    app.command()(command)
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")


def _check_encoding(arguments: Sequence[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise BadRequest(f"argument {number} is not valid UTF-8") from None
        if "\0" in argument:
            raise BadRequest(f"argument {number} holds a NUL character")


def _note_unknown_variables() -> None:
    """Print a line with the SIGNALBOX_ environment variables that are not settings. They cause no failure."""
    if _COMPLETION in os.environ or not any(name.startswith("SIGNALBOX_") for name in os.environ):
        return
    from agent.serve.cli import output
    from agent.settings import unknown_variables

    if unknown := unknown_variables():
        output.print_note("; ".join(unknown))


def _load_commands(arguments: Sequence[str]) -> Any:
    """Return the command line with the commands that other packages add by the entry points `signalbox.commands`.

    Each added command is a function or a Typer group, loaded only if that command or the list of commands is requested.

    Raises:
        Unavailable: the requested command cannot be loaded.
    """
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    known = {group.name for group in app.registered_groups} | {one.name for one in app.registered_commands}
    for command in entry_points(group="signalbox.commands"):
        if command.name in known or asked not in (None, command.name):
            continue
        try:
            loaded = command.load()
        except ImportError as error:
            if asked is not None:
                reason = f"{error}; install its packages with {install_command(command.name)}"
                raise Unavailable(f"the command {command.name}", reason) from error
            continue
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=command.name)
        else:
            app.command(command.name)(loaded)
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return an exit code of `agent.serve.exit_codes`; 130 if the user interrupts."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check_encoding(arguments)
        _note_unknown_variables()
        code = _load_commands(arguments).main(args=list(arguments), prog_name="signalbox", standalone_mode=False)
    except typer.TyperException as error:  # wrong usage: an unknown option, a missing argument
        message = error.format_message()
        if message.startswith("Usage: "):  # the help text, if no command was given
            print(message, file=sys.stderr if arguments else sys.stdout)
            return BAD_INPUT if arguments else DONE
        return _print_error(message, BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        return _print_error("stopped; documents stored so far are kept", _INTERRUPTED)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`): not an error, but nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _print_error(error_line(error), exit_code(error))
    return code if isinstance(code, int) else DONE


def _print_error(message: str, code: int) -> int:
    print(f"signalbox: {one_line(message)}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal with another character set shows a question mark for a character it lacks.
            stream.reconfigure(errors="replace")
    # Exit normally on SIGTERM, so that everything started is stopped, including the embedded database server.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # The driver logs every lost connection itself; the errors that matter are raised.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    sys.exit(run(sys.argv[1:]))
