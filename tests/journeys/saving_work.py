"""Work that saves itself on a volume, and which of its processes live."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.journeys.hosts import Machine

Kind = Literal["notice", "kill-switch", "power", "silence", "gpu-lost", "xid"]
KINDS: tuple[Kind, ...] = ("notice", "kill-switch", "power", "silence", "gpu-lost", "xid")
CHECKPOINT_SECONDS = 5
STEP_SECONDS = 0.1

PROGRAM = f"""
import os, pathlib, signal, sys, time

folder, volume = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder.parent / "library"))
from checkpoint import Checkpoints

saves = Checkpoints("volumes/" + volume)
last = saves.newest()
step = last.about["step"] + 1 if last else 0
lease = os.environ["OFFPEAK_LEASE_ID"]
told = (folder / lease).open("a", buffering=1)
told.write(f"{{step}} {{time.time()}} {{os.getpid()}}\\n")
while not (folder / "finish").exists():
    time.sleep({STEP_SECONDS})
    step += 1
    told.write(f"{{step}} {{time.time()}}\\n")
    failure = folder / f"{{lease}}.fails"
    if failure.exists():
        if failure.read_text() == "dies":
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    if saves.due(every={CHECKPOINT_SECONDS}):
        with saves.save(step=step) as made:
            (made / "state").write_text("x" * 100_000)
    if saves.ending:
        sys.exit(143)
"""
"""Steps of work, each told. On a GPU that fails it dies or hangs, as kernels do."""


@dataclass(slots=True)
class Chain:
    """Work of one bid and of what follows it. Times are of this machine's clock."""

    bid_id: str
    volume: str
    folder: Path
    lease: dict[str, Any] = field(default_factory=dict)
    machine: Machine | None = None
    kind: Kind = "notice"
    left_at: float = 0.0
    free_by: float | None = None
    free_at: float | None = None
    next_lease: str = ""
    resumed_at: float | None = None
    spooled: dict[str, set[tuple[int, int, str]]] = field(default_factory=dict)

    @property
    def host(self) -> Machine:
        """The machine that it ran on first."""
        assert self.machine is not None
        return self.machine

    def is_gone(self) -> bool:
        """Tell if the work is gone from where it ran first, and so off its card.

        Its keeper may live on for a moment.
        """
        first = (self.folder / self.lease["id"]).read_text().splitlines()[0]
        try:
            told = Path("/proc", first.split()[2], "stat").read_text()
        except OSError:
            return True
        return told.rpartition(")")[2].split()[0] == "Z"

    def steps(self, lease_id: str) -> list[tuple[int, float]]:
        """Return the steps that the work of a lease told, each with its time; the first is where it
        began."""
        path = self.folder / lease_id
        lines = path.read_text().splitlines() if path.exists() else []
        told = [line.split() for line in lines]
        return [(int(each[0]), float(each[1])) for each in told if len(each) >= 2]


def overlap(spans: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Return for how long two leases of one work were both granted, in milliseconds."""
    return sum(
        max(0, min(end, other_end) - max(start, other_start))
        for number, each in enumerate(spans)
        for start, end in each
        for others in spans[number + 1 :]
        for other_start, other_end in others
    )


def processes_of(folder: Path) -> list[int]:
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
