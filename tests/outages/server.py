"""A real PostgreSQL of a test's own, which can be stopped, killed, made read-only and filled up.

It can be filled up where we may mount a file system of memory for it alone, which takes root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote

import psycopg

from config.database.embedded import DATABASE, FOLDER, ensure_running, owners_password, stop
from config.database.roles import OWNER

GONE_SECONDS_MAX = 20.0
BALLAST = "ballast"
BALLAST_STEPS = (16 << 20, 1 << 20, 64 << 10, 4 << 10)
WAL_MIB_MAX = 96


class Server:
    """It runs under a folder of its own, with a short name: a socket's path has a hundred bytes.

    port: by which its socket is named, and on which it listens where it listens on TCP.
    """

    port = 5432

    def __init__(self, folder: Path | None = None, *, mib_max: int = 0) -> None:
        """Start it; with `mib_max`, on a file system of that size if we may mount one."""
        self.home = folder or Path(tempfile.mkdtemp(prefix="offpg"))
        self.can_be_full = bool(mib_max) and _mount(self.home / FOLDER, mib_max)
        try:
            self.start()
            self._set_up()
        except BaseException:
            self.remove()  # nobody has it yet who could
            raise

    def _set_up(self) -> None:
        """Make it what it is for, once it runs."""
        if self.can_be_full:
            with psycopg.connect(self.url, autocommit=True) as connected:
                connected.execute(f"ALTER SYSTEM SET max_wal_size = '{WAL_MIB_MAX}MB'")
                connected.execute("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        """Return its address for others, who do not know that it could be started by them."""
        owner, folder = f"{OWNER}:{owners_password(self.home)}", quote(self._socket, safe="")
        return f"postgresql://{owner}@/{DATABASE}?host={folder}&port={self.port}"

    @property
    def socket(self) -> str:
        """Return the folder of its socket."""
        return self._socket

    def start(self) -> None:
        """Start it, if it does not run."""
        self._socket = ensure_running(self.home)

    def hang(self) -> None:
        """Let it take connections and questions and answer nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hang`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would; return once nothing of it is left."""
        first, *_ = self._processes()
        os.kill(first, signal.SIGSTOP)  # or it makes another that answers, while we look
        processes = self._processes()
        self._signal(signal.SIGKILL)
        limit = time.monotonic() + GONE_SECONDS_MAX
        while any(map(_runs, processes)):
            assert time.monotonic() < limit, "a process of PostgreSQL outlived its end"
            time.sleep(0.01)

    def refuse_writes(self, refuse: bool) -> None:
        """Take no writes, as a standby after a fail-over; or take them again."""
        setting = "on" if refuse else "off"
        with psycopg.connect(self.url, autocommit=True) as connected:
            connected.execute("SET default_transaction_read_only = off")
            connected.execute(f"ALTER SYSTEM SET default_transaction_read_only = {setting}")
            connected.execute("SELECT pg_reload_conf()")

    def end_connections(self) -> int:
        """End everybody's connection; return how many there were."""
        with psycopg.connect(self.url, autocommit=True) as connected:
            ended = connected.execute(
                # The second argument waits until it has ended.
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            return len(ended.fetchall())

    def take_all_connections(self) -> list[psycopg.Connection[tuple[object, ...]]]:
        """Leave nobody a connection: who has one keeps it. Close what is returned."""
        taken = []
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(self.url))
        return taken

    def fill(self) -> None:
        """Leave no room on its disk. What it frees meanwhile is taken by the next call."""
        assert self.can_be_full
        with (self.home / FOLDER / BALLAST).open("ab") as ballast:
            for step in BALLAST_STEPS:
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), step)

    def make_room(self) -> None:
        """End `fill`."""
        (self.home / FOLDER / BALLAST).unlink(missing_ok=True)

    def ask(self, sql: LiteralString) -> list[tuple[object, ...]]:
        """Return what it answers."""
        with psycopg.connect(self.url, autocommit=True) as connected:
            return connected.execute(sql).fetchall()

    def remove(self) -> None:
        """End it for good; leave nothing of it, whatever went wrong with it."""
        try:
            with suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
                self.go_on()
            stop(self.home)
        finally:
            if self.can_be_full:
                subprocess.run(["umount", "--lazy", str(self.home / FOLDER)], check=False)
            shutil.rmtree(self.home, ignore_errors=True)

    def _signal(self, signal_number: int) -> None:
        """Those that end meanwhile, as a connection that was closed, need none."""
        for process in self._processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal_number)

    def _processes(self) -> list[int]:
        note = (self.home / FOLDER / "postmaster.pid").read_text().splitlines()
        first = int(note[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]


def _runs(process: int) -> bool:
    """Tell if a process is there, and no mere entry that nobody has asked for yet."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _mount(folder: Path, mib_max: int) -> bool:
    """Mount an empty file system of that size; tell if we may."""
    folder.mkdir(parents=True)
    size = f"size={mib_max}m,mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "offpeak-test", str(folder)],
        capture_output=True,
        check=False,
    )
    return mounted.returncode == 0
