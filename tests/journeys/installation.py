"""A whole installation as its users meet it: web, loops and agents as processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from config.database.embedded import stop as stop_database
from config.processes.orphans import PARENT
from config.wiring import LOOP_GROUPS
from marketplace.sdk.client import Client
from marketplace.sdk.problems import Problem
from tests.journeys.parent import FOUND, Forked, Parent
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
PAUSE_SECONDS = 0.05
TROUBLES_MAX = 8
"""How many lines of each process's log a failure shows."""
LINE_MAX = 400
"""How many characters of such a line."""
OURS = {"DATABASE_URL", "REDIS_URL", "EVENTSTORE_URL", "PORT", "DJANGO_SETTINGS_MODULE"}
SHORT = {
    "OFFPEAK_DEMO": "1",
    "OFFPEAK_BURST_CLOUD": "none",
    "OFFPEAK_BURST_WAIT_SECONDS": "2",
    "OFFPEAK_BURST_IDLE_SECONDS": "60",
    "OFFPEAK_BURST_DRAIN_SECONDS": "4",
    "OFFPEAK_ROUND_SECONDS": "2",
    "OFFPEAK_USAGE_WINDOW_SECONDS": "60",
    "OFFPEAK_METER_GRACE_SECONDS": "120",
    "OFFPEAK_START_GRACE_SECONDS": "60",
    "OFFPEAK_AGENT_SAMPLE_SECONDS": "1",
    "OFFPEAK_AGENT_POLL_SECONDS": "1",
    "OFFPEAK_THROTTLE_PER_MINUTE": "100000",
}
"""A demo, for its log-ins of one click; with the times of a market at the pace of a test."""

T = TypeVar("T")


def until(
    ask: Callable[[], T],
    *,
    seconds: float = DEADLINE_SECONDS,
    why: str | Callable[[], object] = "",
) -> T:
    """Ask until the answer is true; return it. why: said where it never is, as it is by then."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            said = why() if callable(why) else why
            raise AssertionError(f"it did not come about in {seconds} s: {said}")
        time.sleep(PAUSE_SECONDS)
    return answer


@dataclass(frozen=True, slots=True)
class Answered:
    """What a command line said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return its standard output, read as JSON, of a command that succeeded."""
        assert self.code == 0, f"ended with {self.code}: {self.out}\n{self.err}"
        return json.loads(self.out)


class Installation:
    """One market with a data directory, a database and a port of its own.

    tokens: of every person, by first name.
    """

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens: dict[str, str] = {}
        self._logs = home / "logs"
        self._processes: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._parent: Parent | None = None
        inherited = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith("OFFPEAK_") and name not in OURS
        }
        self.environment = {
            **inherited,
            **SHORT,
            "OFFPEAK_HOME": str(home),
            "OFFPEAK_KERNELS": os.environ["OFFPEAK_KERNELS"],
            "PORT": str(self.port),
            PARENT: str(os.getpid()),
            **settings,
        }

    def found(self) -> None:
        """Make the tables and everybody who takes part."""
        self._logs.mkdir(parents=True)
        self.manage("migrate", "--verbosity", "0")
        self.tokens = self.manage(FOUND).json

    def start_all(self) -> None:
        """Serve, with every loop in the processes that `manage.py up` spreads them over."""
        for name in ("web", *LOOP_GROUPS):
            if name != "overflow" or self.environment["OFFPEAK_BURST_CLOUD"] != "none":
                self.start(name)
        until(self.is_ready, why=f"see {self._logs}")
        for person in self.tokens:
            until(partial(self._knows, person), why=f"see {self._logs}")

    def _knows(self, person: str) -> bool:
        """Tell if somebody's token works: a site that is ready may be seconds behind its events."""
        with self.client(person) as api:
            try:
                api.get("bids")
            except Problem as refused:
                return refused.status != HTTPStatus.UNAUTHORIZED
        return True

    def start(self, name: str, *, under: str = "") -> None:
        """Start `web` or a group of loops; `under`: another name, for a second one of a group.

        As children of `manage.py up` they make no checks of settings: `migrate` has made them.
        """
        words = ["web"] if name == "web" else ["run", *LOOP_GROUPS[name]]
        assert (under or name) not in self._processes
        log = self._logs / f"{under or name}.log"
        self._processes[under or name] = self._forks.fork(words, log, log, checked=False)

    @property
    def _forks(self) -> Parent:
        """What forks our own processes: started with the first of them."""
        if self._parent is None:
            self._parent = Parent(self.environment, self._logs / "parent.log")
        return self._parent

    def spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a process that lives no longer than the installation."""
        assert name not in self._processes
        path = self._logs / f"{name}.log"
        path.touch(0o600)  # as all that the product writes under this folder: its doctor looks
        with path.open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **(environment or {})},
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a process with SIGKILL, as a power cut would."""
        process = self._processes.pop(name)
        assert process.poll() is None, f"{name} had ended by itself: {self.log(name)[-2000:]}"
        process.kill()
        process.wait(10)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process, such as the one that stops it where it is."""
        self._processes[name].send_signal(number)

    def forget(self, name: str) -> None:
        """Take note that somebody else killed a process."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.wait(10)

    def end(self, *names: str) -> None:
        """End processes the ordinary way."""
        ending = [self._processes.pop(name) for name in names]
        for process in ending:
            process.send_signal(signal.SIGTERM)
        for process in ending:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def end_all(self) -> None:
        """End every process and the database."""
        self.end(*self._processes)
        if self._parent is not None:
            self._parent.end()
        stop_database(self.home)

    def is_ready(self) -> bool:
        """Tell if it says that it is ready to serve."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def log(self, name: str) -> str:
        """Return what a process has written."""
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def troubles(self) -> str:
        """Return the last that any process wrote of something that failed."""
        logs = ((path.stem, path.read_text(errors="replace")) for path in self._logs.glob("*.log"))
        wrong = [
            f"{name}: {line[:LINE_MAX]}"
            for name, log in logs
            for line in [each for each in log.splitlines() if '"info"' not in each][-TROUBLES_MAX:]
        ]
        return "\n".join(wrong)

    def manage(self, *words: str) -> Answered:
        """Run `manage.py`."""
        answered = self.manage_anyway(*words)
        assert answered.code == 0, f"manage.py {' '.join(words)}: {answered.out}{answered.err}"
        return answered

    def manage_anyway(self, *words: str) -> Answered:
        """Run `manage.py`, which may fail."""
        with TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            code = self._forks.fork(words, out, err, checked=True).wait(120)
            return Answered(code, out.read_text(), err.read_text())

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Answered:
        """Run a command to its end."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env={**self.environment, **(environment or {})},
            check=False,
        )
        return Answered(done.returncode, done.stdout, done.stderr)

    def cli(self, person: str, *words: str) -> Answered:
        """Run `offpeak -o json …` as somebody."""
        command = [sys.executable, "-m", "marketplace.sdk", "-o", "json", *words]
        known = {"OFFPEAK_SERVER": self.url, "OFFPEAK_TOKEN": self.tokens[person]}
        return self.run(command, known)

    def client(self, person: str) -> Client:
        """Return the API as somebody; close it."""
        return Client(self.url, self.tokens[person])

    def bid(
        self,
        person: str,
        query: str,
        command: Sequence[str],
        *,
        key: str | None = None,
        **terms: Any,
    ) -> str:
        """Place a bid for one GPU for ten minutes, or on other terms; return its id."""
        asked = {
            "query": query,
            "gpus": 1,
            "duration_seconds": 600,
            "limit": "3",
            "service_class": "on-demand",
            "workload": {"kind": "other", "command": list(command)},
            **terms,
        }
        with self.client(person) as api:
            placed = api.post("bids", asked, key=key)
            api.get(f"bids/{placed['id']}", after=placed["position"])
        return str(placed["id"])

    def lease_of(self, person: str, bid_id: str, *, state: str) -> dict[str, Any]:
        """Wait until the lease of a bid is in that state; return it."""
        with self.client(person) as api:

            def asked() -> dict[str, Any] | None:
                found: list[dict[str, Any]] = api.get("leases", bid_id=bid_id)["data"]
                return next((each for each in found if each["state"] == state), None)

            def stands() -> str:
                bid, leases = api.get(f"bids/{bid_id}"), api.get("leases", bid_id=bid_id)["data"]
                return f"no lease is {state}: {bid}, {leases}\n{self.troubles()}"

            lease = until(asked, why=stands)
        assert lease is not None
        return lease
