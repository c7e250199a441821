"""The embedded server: shared by processes, whatever happens to them."""

import asyncio
import errno
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from retrievers.core.errors import Unavailable
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.embedded import DATABASE, EmbeddedServer
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE, SET_CONFIG, migrate
from retrievers.testing import HashEmbedder

pytestmark = pytest.mark.database

VERSION = int(os.environ.get("SIGNALBOX_TEST_POSTGRES", "18"))
ROOT = Path(__file__).resolve().parents[2]
# Takes part in the server until its stdin is closed.
USER = """
import sys
from contextlib import suppress
from pathlib import Path
import psycopg
from retrievers.postgres.server.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), int(sys.argv[2]))
server.start()
with psycopg.connect(server.conninfo()) as connection:
    print(connection.execute("SELECT pg_postmaster_start_time()").fetchone()[0].timestamp(), flush=True)
sys.stdin.read()
server.stop()
"""


class User:
    """A process that uses the server of a home."""

    def __init__(self, home: Path, **options: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home), str(VERSION)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            **options,  # type: ignore[call-overload]
        )

    def started(self) -> str:
        """When the server that it uses was started; waits until it uses one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()[1]
        return str(line)

    def leave(self) -> None:
        _, errors = self.process.communicate()
        assert (self.process.returncode, errors) == (0, "")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def postmaster(home: Path) -> int | None:
    """Process number of the running server, by its pid file."""
    try:
        return int((home / f"postgres-{VERSION}" / "postmaster.pid").read_text().split()[0])
    except FileNotFoundError:
        return None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    # A child that nobody has waited for is gone all the same.
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def ask(server: EmbeddedServer, statement: str) -> object:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose data folder is made; its server is not running."""
    home = tmp_path_factory.mktemp("made")
    server = EmbeddedServer(home, VERSION)
    server.start()
    server.stop()
    return home


@pytest.fixture
def home(made: Path) -> Iterator[Path]:
    yield made
    assert postmaster(made) is None, "the server was left running"


def test_a_first_start_makes_a_server_that_answers_and_the_last_to_leave_stops_it(tmp_path: Path):
    server = EmbeddedServer(tmp_path / "new" / "home", VERSION)

    server.start()
    pid = postmaster(tmp_path / "new" / "home")
    assert ask(server, "SELECT current_database()") == DATABASE
    server.stop()

    assert pid is not None
    assert not alive(pid)
    assert postmaster(tmp_path / "new" / "home") is None
    data = tmp_path / "new" / "home" / f"postgres-{VERSION}"
    assert data.stat().st_mode & 0o077 == 0


def test_the_server_listens_on_no_network_and_compiles_nothing(home: Path):
    server = EmbeddedServer(home, VERSION)
    server.start()
    try:
        shown = {name: ask(server, f"SHOW {name}") for name in ("listen_addresses", "jit", "server_encoding", "port")}
        lower = ask(server, "SELECT lower('ÉCOLE') || ('a' < 'B')::text")
        temporary = ask(server, "SELECT has_database_privilege('pg_monitor', current_database(), 'TEMPORARY')")
    finally:
        server.stop()

    assert shown == {"listen_addresses": "", "jit": "off", "server_encoding": "UTF8", "port": "5432"}
    assert lower == "écolefalse"
    assert temporary is False


def test_starting_and_stopping_twice_is_as_good_as_once(home: Path):
    server = EmbeddedServer(home, VERSION)
    server.start()
    server.start()
    assert ask(server, "SELECT 1") == 1
    server.stop()
    server.stop()


def test_processes_share_one_server_until_the_last_leaves(home: Path):
    first, second = User(home), User(home)

    assert first.started() == second.started()
    first.leave()
    assert postmaster(home) is not None
    second.leave()
    assert postmaster(home) is None


def test_two_users_in_one_process_count_as_two(home: Path):
    one, other = EmbeddedServer(home, VERSION), EmbeddedServer(home, VERSION)
    one.start()
    other.start()
    one.stop()
    assert ask(other, "SELECT 1") == 1
    other.stop()


def test_a_killed_user_leaves_the_server_to_the_others_who_still_stop_it(home: Path):
    killed, staying = User(home), User(home)
    killed.started()
    staying.started()

    killed.kill()
    server = EmbeddedServer(home, VERSION)
    server.start()
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert postmaster(home) is not None
    staying.leave()
    assert postmaster(home) is None


def test_a_server_whose_only_user_was_killed_is_adopted_and_stopped(home: Path):
    killed = User(home)
    started = killed.started()
    killed.kill()

    user = User(home)
    assert user.started() == started
    user.leave()
    assert postmaster(home) is None


def test_a_killed_server_starts_again_with_its_data(home: Path):
    server = EmbeddedServer(home, VERSION)
    server.start()
    ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    waiting = psycopg.connect(server.conninfo(), autocommit=True)
    pid = postmaster(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    user = User(home)
    user.started()
    assert ask(server, "SELECT answer FROM kept") == 42
    ask(server, "DROP TABLE kept")
    waiting.close()
    user.leave()
    server.stop()


def test_who_takes_part_in_a_killed_server_revives_it(home: Path):
    server = EmbeddedServer(home, VERSION)
    assert not server.revive(), "nobody takes part yet"
    server.start()
    assert not server.revive(), "it runs"
    pid = postmaster(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.02)

    assert server.revive()
    assert ask(server, "SELECT 42") == 42
    server.stop()
    assert postmaster(home) is None
    assert not server.revive(), "who left starts nothing"


@pytest.mark.parametrize("missing", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_file_descriptors_does_not_take_the_server_for_dead(
    home: Path, monkeypatch: pytest.MonkeyPatch, missing: int
):
    def refuse(path: Path, *_: object) -> str:
        raise OSError(missing, "Too many open files", str(path))

    server = EmbeddedServer(home, VERSION)
    server.start()
    with monkeypatch.context() as context:
        context.setattr(Path, "read_text", refuse)
        assert not server.revive()
    server.stop()


@pytest.mark.parametrize("free", [1, 2])
def test_a_server_that_was_killed_is_revived_once_there_are_file_descriptors_again(home: Path, free: int):
    server = EmbeddedServer(home, VERSION)
    server.start()
    pid = postmaster(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.02)

    lowest_free = os.dup(0)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + free, hard))
    try:
        with suppress(Unavailable):
            server.revive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    server.revive()
    assert ask(server, "SELECT 42") == 42
    server.stop()


def test_a_pid_file_that_names_another_program_by_now_does_not_stop_the_server(home: Path):
    data = home / f"postgres-{VERSION}"
    # What a container leaves behind whose processes were all killed; this very process has "its" number now.
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n1700000000\n5432\n{data}\n\n  0  0\nready\n")
    shutil.chown(data / "postmaster.pid", data.owner())

    user = User(home)
    user.started()
    assert postmaster(home) not in (None, os.getpid())
    user.leave()
    assert postmaster(home) is None


def test_a_server_without_the_service_s_database_gets_it(home: Path):
    # A start that was killed after the server ran and before the database was made.
    server = EmbeddedServer(home, VERSION)
    server.start()
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE}")

    other = EmbeddedServer(home, VERSION)
    other.start()
    assert ask(other, "SELECT current_database()") == DATABASE
    other.stop()
    server.stop()


CLOSED = """
    SELECT array_agg(has_function_privilege('public', one, 'EXECUTE')) FROM unnest(ARRAY[
        'set_config(text,text,boolean)', 'pg_stat_get_activity(integer)', 'pg_stat_get_backend_activity(integer)',
        'pg_terminate_backend(integer,bigint)', 'pg_cancel_backend(integer)']) AS one
"""
SERVES = "SELECT has_function_privilege('signalbox_app', 'set_config(text,text,boolean)', 'EXECUTE')"


async def test_what_a_statement_could_do_harm_with_is_closed_to_everybody_and_the_service_works(tmp_path: Path):
    server = EmbeddedServer(tmp_path, VERSION)
    server.start()
    try:
        assert ask(server, CLOSED) == [False] * 5, "before there is a schema or a role"
        service = make_conninfo(server.conninfo(), user=SERVICE_ROLE)
        for _ in range(2):
            async with Database(server.conninfo(), service, size=2) as database:
                await ingest(database, HashEmbedder(), "acme", "c", [Document("1", "d1", "T", "Oil the bearing.")])
                assert await database.fetch("acme", "SELECT id FROM signalbox.document", {}) == [("d1",)]
                sleeping = asyncio.create_task(database.fetch("acme", "SELECT pg_sleep(600)", {}))
                begun = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
                while ask(server, begun) == 0:  # noqa: ASYNC110 - it begins in another process
                    await asyncio.sleep(0.05)
                sleeping.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sleeping
            assert ask(server, SERVES) is True
        before = ask(server, "SELECT array_agg(xmin::text ORDER BY oid) FROM pg_proc WHERE proacl IS NOT NULL")
        other = EmbeddedServer(tmp_path, VERSION)
        other.start()
        other.stop()
        after = ask(server, "SELECT array_agg(xmin::text ORDER BY oid) FROM pg_proc WHERE proacl IS NOT NULL")
        assert after == before, "another start writes nothing"
        dump = await asyncio.create_subprocess_exec(
            server._binaries() / "pg_dump", server.conninfo(), stdout=asyncio.subprocess.PIPE
        )
        assert b"COPY signalbox.document" in (await dump.communicate())[0]
        assert dump.returncode == 0
    finally:
        server.stop()


def test_a_server_of_an_earlier_program_is_closed_at_its_next_start(home: Path):
    server = EmbeddedServer(home, VERSION)
    server.start()
    migrate(server.conninfo())
    ask(server, f"GRANT EXECUTE ON FUNCTION {SET_CONFIG}, pg_cancel_backend(integer) TO PUBLIC")
    ask(server, f"REVOKE EXECUTE ON FUNCTION {SET_CONFIG} FROM signalbox_app")
    server.stop()

    server.start()
    assert ask(server, CLOSED) == [False] * 5
    assert ask(server, SERVES) is True
    server.stop()


def test_a_read_only_server_is_joined(home: Path):
    server = EmbeddedServer(home, VERSION)
    server.start()
    ask(server, "ALTER SYSTEM SET default_transaction_read_only = on")
    ask(server, "SELECT pg_reload_conf()")
    again = EmbeddedServer(home, VERSION)
    again.start()
    assert ask(again, "SELECT 1") == 1
    again.stop()
    ask(server, "ALTER SYSTEM RESET default_transaction_read_only")
    server.stop()


def test_a_first_start_that_was_killed_is_begun_anew(tmp_path: Path):
    killed = User(tmp_path)
    for _ in range(500):
        if list(tmp_path.glob("postgres-*/*")):
            break
        time.sleep(0.01)
    killed.kill()
    assert list(tmp_path.glob("postgres-*/*")), "initdb had not begun"

    server = EmbeddedServer(tmp_path, VERSION)
    server.start()
    assert ask(server, "SELECT 1") == 1
    server.stop()
    # The initdb of the killed process may have gone on for a moment: a later start clears away what it left.
    for _ in range(20):
        server.start()
        server.stop()
        left = [path.name for path in tmp_path.iterdir() if path.is_dir()]
        if left == [f"postgres-{VERSION}"]:
            break
        time.sleep(0.2)
    assert left == [f"postgres-{VERSION}"]


def test_what_is_no_data_folder_is_left_alone(tmp_path: Path):
    precious = tmp_path / f"postgres-{VERSION}" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("all of it")

    with pytest.raises(Unavailable, match="move it away"):
        EmbeddedServer(tmp_path, VERSION).start()
    assert precious.read_text() == "all of it"


def test_four_processes_that_start_at_once_make_one_server(tmp_path: Path):
    users = [User(tmp_path) for _ in range(4)]

    assert len({user.started() for user in users}) == 1
    for user in users:
        user.leave()
    assert postmaster(tmp_path) is None


@pytest.mark.parametrize("name", ["a" * 120, "it's, ünusual $(home)"], ids=["long", "odd"])
def test_a_path_that_no_socket_can_have_works_all_the_same(tmp_path: Path, name: str, made: Path):
    home = tmp_path / name
    subprocess.run(["cp", "-a", str(made), str(home)], check=True)

    server = EmbeddedServer(home, VERSION)
    server.start()
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(server.conninfo())["host"]))
    try:
        assert ask(server, "SELECT 1") == 1
        assert folder.stat().st_mode & 0o077 == 0
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_a_home_that_cannot_be_written_is_said_in_one_line(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable, match="SIGNALBOX_HOME") as caught:
        EmbeddedServer(tmp_path / "file" / "home", VERSION).start()
    assert "\n" not in str(caught.value)


def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path, made: Path):
    home = tmp_path / "home"
    subprocess.run(["cp", "-a", str(made), str(home)], check=True)
    (home / f"postgres-{VERSION}" / "PG_VERSION").write_text("9\n")

    with pytest.raises(Unavailable, match=r"does not start: .*incompatible") as caught:
        EmbeddedServer(home, VERSION).start()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["", "global/pg_control"])
def test_data_that_may_not_be_written_is_named_with_what_mends_it(tmp_path: Path, made: Path, part: str):
    home = tmp_path / "home"
    subprocess.run(["cp", "-a", str(made), str(home)], check=True)
    data = home / f"postgres-{VERSION}"
    mode = (data / part).stat().st_mode
    (data / part).chmod(mode & ~0o222)

    with pytest.raises(Unavailable) as caught:
        EmbeddedServer(home, VERSION).start()
    named = f"{data / part} is read-only for it, but it must write there even to answer a question: "
    assert str(caught.value).endswith(f"{named}run chmod -R u+w {data}")

    (data / part).chmod(mode)
    server = EmbeddedServer(home, VERSION)
    server.start()
    server.stop()


def test_leaving_after_the_home_was_removed_is_no_error(tmp_path: Path, made: Path):
    home = tmp_path / "home"
    subprocess.run(["cp", "-a", str(made), str(home)], check=True)
    server = EmbeddedServer(home, VERSION)
    server.start()
    pid = postmaster(home)
    assert pid is not None
    shutil.rmtree(home)

    server.stop()

    os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_a_server_of_their_own():
    try:
        account = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user nobody")
    options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    try:
        command = [sys.executable, "-c", "import retrievers.postgres.server.embedded"]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True, **options)  # type: ignore[call-overload]
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("that user cannot read this installation")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = User(folder, **options)
        user.started()
        assert (folder / f"postgres-{VERSION}").stat().st_uid == account.pw_uid
        user.leave()
        assert postmaster(folder) is None

        locked = folder / "locked"
        locked.mkdir(mode=0o500)
        refused = User(locked / "home", **options)
        _, errors = refused.process.communicate()
        assert errors.strip().splitlines()[-1].endswith("Set SIGNALBOX_HOME to a folder you may write to")
    finally:
        shutil.rmtree(folder)
