"""The embedded PostgreSQL is shared by all processes of one home and outlives any of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from config.database import embedded
from config.database.embedded import FOLDER, ensure_running, stop
from config.database.roles import OWNER, SERVES

ROOT = Path(__file__).resolve().parents[2]
ASKING = """
import sys
import django
django.setup()
from django.db import connection
print("started", flush=True)
for line in sys.stdin:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_postmaster_start_time()::text")
            print(cursor.fetchone()[0], flush=True)
    except Exception as failure:
        connection.close()
        print("failed", type(failure).__name__, flush=True)
"""


class Asking:
    """A process of ours that asks the database for its server's start time when told to."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKING],
            cwd=ROOT,
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        assert self._line() == "started"

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def heard(self) -> str:
        return self._line()

    def ask(self) -> str:
        self.tell()
        return self.heard()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return {**kept, "OFFPEAK_HOME": str(home), "DJANGO_SETTINGS_MODULE": "config.settings"}


@pytest.fixture
def home() -> Iterator[Path]:
    """A fresh data directory with a short name: a socket's path may have a hundred bytes."""
    folder = Path(tempfile.mkdtemp(prefix="offp"))
    yield folder
    stop(folder)
    shutil.rmtree(folder)


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as ended:
        yield ended


def test_two_processes_on_a_fresh_home_share_a_server_that_outlives_a_kill(
    home: Path, ended: ExitStack
) -> None:
    one, other = Asking(home), Asking(home)
    ended.callback(one.kill)
    ended.callback(other.kill)
    one.ready()
    other.ready()

    one.tell()
    other.tell()
    started = one.heard()

    assert other.heard() == started
    assert not started.startswith("failed")
    one.kill()
    assert other.ask() == started, "the server went with a process that used it"


def test_a_stopped_server_is_started_again_by_the_next_connection(
    home: Path, ended: ExitStack
) -> None:
    asking = Asking(home)
    ended.callback(asking.kill)
    asking.ready()
    before = asking.ask()

    assert stop(home)
    # The connection that the stop cut off may say so once.
    answers = [asking.ask() for _ in range(2)]

    assert answers[-1] > before, answers


def test_a_server_of_an_earlier_version_is_changed_over_while_it_runs(
    home: Path, ended: ExitStack
) -> None:
    """There everybody was believed to be the owner, and every process was."""
    ensure_running(home)
    with closing(embedded.as_owner(home, embedded.DATABASE)) as owner:
        owner.execute(
            f"DROP OWNED BY {SERVES}; DROP ROLE {SERVES}; ALTER ROLE {OWNER} PASSWORD NULL"
        )
    (home / embedded.SECRET).unlink()
    (home / embedded.CREATED).write_text("")

    asking = Asking(home)
    ended.callback(asking.kill)
    asking.ready()

    assert not asking.ask().startswith("failed")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host=ensure_running(home), user=OWNER, dbname="postgres")
    embedded.as_owner(home, embedded.DATABASE).close()


def test_down_stops_the_server_and_says_so_when_nothing_runs(home: Path, ended: ExitStack) -> None:
    def down() -> str:
        command = [sys.executable, "manage.py", "down"]
        return subprocess.run(
            command, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True
        ).stdout.strip()

    asking = Asking(home)
    ended.callback(asking.kill)
    asking.ready()
    asking.ask()
    asking.kill()

    assert down() == "stopped"
    assert not (home / FOLDER / "postmaster.pid").exists()
    assert down() == "nothing is running"
