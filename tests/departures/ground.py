"""A market with three hosts that leave and one that stays, each with an agent of its own.

The GPUs are simulated; work is real processes, which save themselves on a volume.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marketplace.sdk import checkpoint
from tests.departures.plan import HOSTS
from tests.departures.spools import Spools
from tests.departures.work import CHECKPOINT_SECONDS
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation
from tests.metering.agent.works import let_through

OWNER = "ada"
STAYS = "stays"
CHEAP, DEAR = "0.10", "0.20"
"""Floors of the hosts that leave and of the one that stays: work that may go to either comes to the
cheaper one first, and to the other when that has left."""
NOTICE_SECONDS, GRACE_SECONDS = 8, 3
HOURS = 12
FIRST_UID, UIDS = 3_000_000, 256
"""Accounts that no other test of this machine uses: so many for each process that tests."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a market and its hosts go. gone_seconds: after so long a silence leases end.

    slack_seconds: how much later than without a break work may be done.
    """

    gone_seconds: int = 20
    slack_seconds: int = 240
    duration_seconds: int = 300

    @property
    def settings(self) -> dict[str, str]:
        """What the market is started with."""
        return {
            "OFFPEAK_ROUND_SECONDS": "1",
            "OFFPEAK_METER_GRACE_SECONDS": "60",
            "OFFPEAK_HOST_GONE_SECONDS": str(self.gone_seconds),
        }


SCALED = Pace()


class Ground:
    """The market, its hosts, and what their agents write down.

    room: how many GPUs the staying host has.
    """

    def __init__(self, folder: Path, *, pace: Pace = SCALED, room: int = 64) -> None:
        self.folder, self.pace, self.room = folder, pace, room
        self.market = Installation(folder / "home", pace.settings)
        self.spools = Spools(folder / "spools")
        self._starting = threading.Lock()
        self._names = 0

    def found(self) -> None:
        """Start the market, the agents and the host that stays."""
        self.market.found()
        self.market.start_all()
        library = self.folder / "library"
        library.mkdir(mode=0o755)
        shutil.copy(str(checkpoint.__file__), library / "checkpoint.py")
        (library / "checkpoint.py").chmod(0o644)
        names = [*(f"departs-{number + 1}" for number in range(HOSTS)), STAYS]
        self.machines = [register(self.market, OWNER, name, self.folder) for name in names]
        self.leaving, self.stays = self.machines[:HOSTS], self.machines[HOSTS]
        for machine in self.machines:
            self.spools.follow(machine.state_dir / "spool")
            self.start(machine)
        self.gpus = {machine.region: machine.gpus() for machine in self.machines}
        self.stays.list_for(
            HOURS,
            floor=DEAR,
            gpus=self.gpus[STAYS],
            notice_seconds=NOTICE_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )

    def start(self, machine: Machine) -> None:
        """Start the agent of a machine."""
        number = self.machines.index(machine)
        share = UIDS // (HOSTS + 1)
        first = FIRST_UID + os.getpid() % 10_000 * UIDS + number * share
        users = ["--work-users", f"{first}-{first + share - 1}"]
        gpus = self.room if machine.region == STAYS else 64
        command = [
            sys.executable, "-m", "metering.agent", "run", "--server", self.market.url,
            "--state-dir", str(machine.state_dir), "--hostname", machine.region,
            "--simulate", f"L4:{gpus}", "--checkpoint-seconds", str(CHECKPOINT_SECONDS),
            "--access", "off", "--confine", "off",
            *(users if os.geteuid() == 0 else ["--trust-work"]),
        ]  # fmt: skip
        let_through(machine.state_dir.parent)
        with self._starting:
            self.market.spawn(machine.process, command, {"OFFPEAK_AGENT_TOKEN": machine.token})

    def of_agent(self, machine: Machine, *words: str) -> None:
        """Run a command of an agent on its host."""
        command = [sys.executable, "-m", "metering.agent", *words]
        done = self.market.run([*command, "--state-dir", str(machine.state_dir)])
        assert done.code == 0, done

    def cut_power(self, machine: Machine) -> None:
        """Kill agent, keepers and work of a host, all of them at once."""
        while found := _processes_of(machine.state_dir):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in found:
                    with suppress(ProcessLookupError):
                        os.kill(process, number)
            with self._starting:
                self.market.forget(machine.process)

    def agent_of(self, machine: Machine) -> Mapping[str, Any]:
        """Return what the market says of a host's agent."""
        with self.market.client(OWNER) as api:
            return next(each for each in api.all("agents") if each["host_id"] == machine.host_id)

    def name(self) -> str:
        """Return a name that was not given before."""
        with self._starting:
            self._names += 1
            return f"departs-{self._names}"

    def end(self) -> None:
        """Leave nothing running."""
        for machine in getattr(self, "machines", ()):
            self.cut_power(machine)
        self.spools.end()
        self.market.end_all()


def _processes_of(folder: Path) -> list[int]:
    """Return the processes that were started with a folder, or stand in it."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace")
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and (
                f"{folder}" in words or f"{os.readlink(process / 'cwd')}/".startswith(f"{folder}/")
            ):
                found.append(int(process.name))
    return found
