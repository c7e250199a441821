"""Ownership and permissions of the embedded PostgreSQL's folders."""

import os
import pwd
import shlex
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from retrievers.core.errors import Unavailable

SOURCE = "the embedded PostgreSQL"


def write_problem(data: Path, user: str | None) -> str | None:
    """Return what in the data folder its server cannot write, and the repair, as a message; None if it can write all.

    Args:
        user: the account that the server runs as; None for this process's account.
    """
    if os.statvfs(data).f_flag & os.ST_RDONLY:
        mend = "mount it for writing, or copy the folder and set SIGNALBOX_HOME to the copy"
        return f"the file system of {data} is read-only: {mend}"
    owner = system_account(user).pw_uid if user else os.geteuid()
    for path in (data, *data.rglob("*")):
        try:
            status = path.lstat()
        except OSError:
            # Removed in the meantime, or inside an inaccessible folder that was reported before.
            continue
        if status.st_uid != owner:
            mend = f"chown -R {user or owner} {shlex.quote(str(data))}"
        elif not stat.S_ISLNK(status.st_mode) and not status.st_mode & stat.S_IWUSR:
            mend = f"chmod -R u+w {shlex.quote(str(data))}"
        else:
            continue
        return f"{path} is read-only for it, but it must write there even to answer a question: run {mend}"
    return None


def system_account(user: str) -> pwd.struct_passwd:
    """Return the system user with this name; create the user if there is none.

    Raises:
        Unavailable: the user cannot be created.
    """
    try:
        return pwd.getpwnam(user)
    except KeyError:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["useradd", "--system", "--no-create-home", user], check=True, capture_output=True)
            return pwd.getpwnam(user)
    raise Unavailable(
        SOURCE,
        f"it does not run as root, and the system user {user!r} cannot be created; run as another user",
    )


def add_permissions(path: Path, bits: int) -> None:
    """Add permission bits to a file or folder. Raises OSError."""
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(mode | bits)
