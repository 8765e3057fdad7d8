"""A market on one machine without traffic, and the living demo: memory, processor, transactions.

Memory is the sum of proportional set sizes: a page that several processes share counts once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from config.database.embedded import DATABASE, as_owner
from tests.benchmarks.figures import Figure
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 300.0
SETTLE_SECONDS = 20.0
MEASURED_SECONDS = 40.0
STOP_SECONDS_MAX = 60.0
KIB_PER_MIB = 1024
OURS = {"DATABASE_URL", "REDIS_URL", "EVENTSTORE_URL", "PORT", "DJANGO_SETTINGS_MODULE"}
IMPORTED = "import django; django.setup(); print('here', flush=True); input()"


def run() -> Iterator[Figure]:
    """Measure a market that nobody asks anything of, then the demo."""
    alone = _one_that_imports()
    yield from _market("idle", alone, {}, mib=450, starts={"first": 60, "second": 8})
    yield from _market("demo", alone, {"OFFPEAK_DEMO": "1"}, mib=650, starts={"first": 60})


def _market(
    kind: str, alone: float, settings: Mapping[str, str], *, mib: int, starts: Mapping[str, int]
) -> Iterator[Figure]:
    """Start a market on an empty directory, once for each of `starts`; measure the last one."""
    with TemporaryDirectory(prefix="offpeak-idle-") as folder:
        home = Path(folder)
        for number, (which, goal) in enumerate(starts.items(), 1):
            with _up(home, settings) as (supervisor, seconds):
                yield Figure(f"{kind}: {which} start", seconds, "s", goal=f"<= {goal}")
                if number == len(starts):
                    time.sleep(SETTLE_SECONDS)
                    yield from _measured(kind, home, supervisor, alone, mib)


def _measured(kind: str, home: Path, supervisor: int, alone: float, mib: int) -> Iterator[Figure]:
    note = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    database = _tree(int(note[0]))
    ours = [each for each in _tree(supervisor) if each not in database]
    for process in ours:
        yield Figure(f"{kind}: {_title(process)}", _mib(process), "MiB", alone, "django.setup()")
    kept = sum(map(_mib, database))
    yield Figure(f"{kind}: database, {len(database)} processes", kept, "MiB")
    total, apart = sum(map(_mib, ours)) + kept, len(ours) * alone + kept
    yield Figure(f"{kind}: memory", total, "MiB", apart, "each for itself", goal=f"<= {mib}")
    began, used, asked = time.monotonic(), _used([*ours, *database]), _transactions(home)
    time.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - began
    busy = 100 * (_used([*ours, *database]) - used) / seconds
    yield Figure(f"{kind}: transactions", (_transactions(home) - asked) / seconds, "/s")
    goal = "<= 4" if kind == "idle" else ""
    yield Figure(f"{kind}: processor", busy, "% of one", goal=goal)


@contextmanager
def _up(home: Path, settings: Mapping[str, str]) -> Iterator[tuple[int, float]]:
    """Run `manage.py up`; give its process, and how long it took until it was ready."""
    log, began = home.with_suffix(".log"), time.monotonic()
    port = str(free_port())
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=ROOT,
            env=_environment({"OFFPEAK_HOME": str(home), "PORT": port, **settings}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        while not any(line.startswith("ready ") for line in log.read_text().splitlines()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < began + START_SECONDS_MAX, log.read_text()
            time.sleep(0.05)
        yield process.pid, time.monotonic() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS_MAX)
        log.unlink()


def _one_that_imports() -> float:
    """Return what one process takes that has imported the product and does nothing."""
    with TemporaryDirectory(prefix="offpeak-idle-") as home:
        process = subprocess.Popen(
            [sys.executable, "-c", IMPORTED],
            cwd=ROOT,
            env=_environment({"OFFPEAK_HOME": home, "DJANGO_SETTINGS_MODULE": "config.settings"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        taken = _mib(process.pid)
        process.communicate(b"\n")
    return taken


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("OFFPEAK_") and name not in OURS
    }
    return {**inherited, **settings}


def _tree(process: int) -> list[int]:
    """Return a process and all that it or its children started."""
    found = [process]
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text().split():
            found += _tree(int(child))
    return found


def _title(process: int) -> str:
    words = Path(f"/proc/{process}/cmdline").read_text().rstrip("\0").split("\0")
    return words[-1]


def _mib(process: int) -> float:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / KIB_PER_MIB
    raise AssertionError("this system does not tell proportional set sizes")


def _used(processes: list[int]) -> float:
    """Return the processor time that those that are still there have used."""
    seconds = 0.0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _transactions(home: Path) -> int:
    with closing(as_owner(home, DATABASE)) as connected:
        connected.execute("SELECT pg_stat_force_next_flush()")
        row = connected.execute(
            "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database"
        ).fetchone()
    assert row is not None
    return int(row[0])
