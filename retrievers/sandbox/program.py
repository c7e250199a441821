"""Run other programs on untrusted files, within the same limits as the processes that read files.

`python -m retrievers.sandbox.program LIMITS PROGRAM ARGUMENT...` sets the limits, which are those of `ProcessLimits` as
JSON, and replaces itself with the program.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from retrievers.core.errors import BadDocument, Unavailable
from retrievers.sandbox.child import limit_cpu, limit_resources
from retrievers.sandbox.limits import ProcessLimits
from retrievers.sandbox.pool import CancelCheck

_POLL_S = 0.2
_MOST_SAID_BYTES = 4000


def run_program(command: Sequence[str], folder: Path, limits: ProcessLimits, is_cancelled: CancelCheck) -> None:
    """Run a program to its end. Processes that it started and that still run are then killed.

    Args:
        command: the program's path and its arguments.
        folder: its working folder, home and folder for temporary files.
        limits: memory and processor time apply to each of its processes.
        is_cancelled: returns True if the caller no longer waits.
    Raises:
        BadDocument: the program fails or exceeds the limits.
        Unavailable: `is_cancelled` returned True.
    """
    said = folder / "said.txt"
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LC_ALL": "C.UTF-8",
        "OMP_THREAD_LIMIT": "1",
    }
    with said.open("wb") as errors:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "retrievers.sandbox.program", json.dumps(asdict(limits)), *command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        code = _wait_for_exit(process, limits, is_cancelled)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code < 0:
        raise BadDocument(limits.exit_reason(code))
    if code:
        lines = said.read_bytes()[-_MOST_SAID_BYTES:].decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        raise BadDocument(last or f"{Path(command[0]).name} ended with exit code {code}")


def _wait_for_exit(process: "subprocess.Popen[bytes]", limits: ProcessLimits, is_cancelled: CancelCheck) -> int:
    """Wait for the end of a process and return its exit code. Raises like `run_program`, also after `limits.wait_s`."""
    deadline = time.monotonic() + limits.wait_s
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if is_cancelled():
                raise Unavailable("the file", "nobody waits for it any more") from None
            if time.monotonic() > deadline:
                raise BadDocument(limits.out_of_time) from None


def main() -> None:
    """Set the limits and replace this process with the program."""
    limits = ProcessLimits(**json.loads(sys.argv[1]))
    limit_resources(limits)
    limit_cpu(limits.cpu_s)
    os.environ.pop("PYTHONPATH", None)  # this process's; the program may use another version of Python
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
