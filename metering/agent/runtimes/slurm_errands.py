"""What the agent has to do at its cluster, done beside everything else: a cluster may be slow.

Each errand is written down before it is begun (`intent.json` in the lease's folder, one file in
`accounts/` for each lease to be compared) and is done again until it is known to be done, so an
agent that is killed at any step goes on where it was.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from ..clock import Clock
from .keeper import write_json
from .records import is_locked, read
from .slurm_commands import Ask, ClusterAway, ClusterRefused, Slurm
from .slurm_facts import PREFIX, Difference, Granted, Job, differences, minutes_until
from .slurm_standing import Standing

log = logging.getLogger(__name__)

BUSY_SECONDS = 1.0
"""Between looks while a job waits or has just ended."""
QUIET_SECONDS = 5.0
NEW_QOS_SECONDS = 20.0
"""How long the controller may take to hear of a new QOS."""
ACCOUNTED_SECONDS = 120.0
"""How long the accounting may take to hear of an end."""


@dataclass(slots=True)
class Errand:
    """A lease that has a job, or is to have one. ends_ms: until when its time limit reaches."""

    ask: Ask
    folder: Path
    ends_ms: int
    wanted_ms: int
    asked_ms: int
    job: Job | None = None
    seen: bool = False
    withdrawn: bool = False
    over: bool = False


class Errands:
    """Goes to the cluster for the leases of one agent, in a thread of its own.

    folder: where what is to be compared is written down. told: takes a GPU of a lease, the
    name of its job, and a difference between the cluster's accounting and what was measured.
    """

    def __init__(
        self,
        cluster: Slurm,
        folder: Path,
        *,
        clock: Clock,
        told: Callable[[str, str, Difference], None],
        pause: float | None = None,
    ) -> None:
        self._cluster, self._clock, self._told = cluster, clock, told
        self._accounts = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._mark = PREFIX + sha256(str(folder).encode()).hexdigest()[:16]
        self._pause = pause
        self.standing = Standing(cluster, clock=clock)
        self._ready = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._errands: dict[UUID, Errand] = {}
        self._old_qos: set[str] = set()
        self._swept = False
        self._said: dict[str, str] = {}

    def ready(self) -> None:
        """Begin to go: all that an earlier run of the agent began has been taken up."""
        self._ready = True
        if self._thread is None:
            self._begin()

    # --- what the runtime asks for ----------------------------------------------------------------

    def want(self, lease_id: UUID, ask: Ask, folder: Path, *, ends_ms: int) -> None:
        """Have a job for the work of a folder, now or as soon as the cluster answers."""
        now_ms = self._clock.now_ms()
        record = {"ask": asdict(ask), "ends_ms": ends_ms, "asked_ms": now_ms}
        write_json(folder / "intent.json", record)
        self._add(lease_id, Errand(ask, folder, ends_ms, ends_ms, now_ms))

    def take_up(self, lease_id: UUID, folder: Path) -> bool:
        """Go on with what an earlier run of the agent began; returns whether it began anything."""
        try:
            found = read(folder / "intent.json")
            ask, ends_ms, asked_ms = Ask(**found["ask"]), found["ends_ms"], found["asked_ms"]
        except (KeyError, TypeError):
            return False
        number = read(folder / "job.json").get("number")
        job = None if number is None else Job(int(number), "PENDING")
        self._add(lease_id, Errand(ask, folder, ends_ms, ends_ms, asked_ms, job))
        return True

    def job(self, lease_id: UUID) -> Job | None:
        """Return the job of a lease as the cluster last told; None: it told of none yet."""
        errand = self._errands.get(lease_id)
        return None if errand is None else errand.job

    def is_sure(self, lease_id: UUID) -> bool:
        """Tell if the cluster has said, in this run of the agent, what became of a lease's job."""
        errand = self._errands.get(lease_id)
        return errand is not None and errand.seen

    def hurry(self) -> None:
        """Look at the cluster at once."""
        self._wake.set()

    def extend(self, lease_id: UUID, *, ends_ms: int) -> None:
        """See to it that the time limit reaches so far."""
        errand = self._errands.get(lease_id)
        if errand is not None and errand.wanted_ms != ends_ms:
            errand.wanted_ms = ends_ms
            self._wake.set()

    def withdraw(self, lease_id: UUID) -> None:
        """Cancel the job of work that did not begin."""
        if (errand := self._errands.get(lease_id)) is not None:
            errand.withdrawn = True
            self._wake.set()

    def compare(self, lease_id: UUID, granted: Granted, *, gpu_uuid: str) -> None:
        """Compare the accounting with what was measured, as soon as it knows of the end."""
        file = self._accounts / f"{lease_id}.json"
        if not file.exists():
            record = {"granted": asdict(granted), "gpu_uuid": gpu_uuid}
            write_json(file, record | {"asked_ms": self._clock.now_ms()})
        self._begin()

    def drop(self, lease_id: UUID) -> None:
        """Remove what the cluster has of a lease that is over, but for its records."""
        with self._lock:
            errand = self._errands.pop(lease_id, None)
            if errand is not None:
                self._old_qos.add(errand.ask.name)
        self._begin()

    @property
    def trouble(self) -> str:
        """Return what stands in the way of an errand; empty: nothing does."""
        return next(iter(list(self._said.values())), "")

    def close(self) -> None:
        """Go no more; what is left to do is done by the next run of the agent."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    # --- going -----------------------------------------------------------------------------------

    def _add(self, lease_id: UUID, errand: Errand) -> None:
        with self._lock:
            self._errands[lease_id] = errand
        self._begin()

    def _begin(self) -> None:
        if self._ready and self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            try:
                self.turn()
            except Exception:
                log.exception("an errand to the cluster failed, and is tried again")
            self._wake.wait(self._seconds())

    def _seconds(self) -> float:
        if self._pause is not None:
            return self._pause
        waits = any(not (each.folder / "started.json").exists() for each in self._all().values())
        return BUSY_SECONDS if waits or self._old_qos else QUIET_SECONDS

    def _all(self) -> dict[UUID, Errand]:
        with self._lock:
            return dict(self._errands)

    def turn(self) -> None:
        """Do what there is to do, once."""
        errands = self._all()
        self.standing.look()
        self._try("the list of jobs", partial(self._look, errands))
        for lease_id, errand in errands.items():
            begun = (errand.folder / "started.json").exists()
            if errand.withdrawn and not errand.over:
                self._try(errand.ask.name, partial(self._cancel, errand))
            elif not begun and errand.job is None and not self._is_refused(errand):
                self._try(errand.ask.name, partial(self._submit, errand))
            elif errand.wanted_ms > errand.ends_ms and errand.job is not None:
                self._try(f"{lease_id} limit", partial(self._extend, errand))
        for file in sorted(self._accounts.glob("*.json")):
            self._try(file.stem, partial(self._compare, file))
        self._try("QOS that are over", self._sweep)

    def _try(self, about: str, errand: Callable[[], None]) -> None:
        try:
            errand()
            self._said.pop(about, None)
        except (ClusterAway, ClusterRefused, OSError) as error:
            if self._said.get(about) != str(error):
                self._said[about] = str(error)
                log.warning("Slurm: %s: %s", about, error)

    def _look(self, errands: dict[UUID, Errand]) -> None:
        """Ask what became of the jobs. One that is not listed any more is over."""
        known = {each.ask.name: each for each in errands.values()}
        listed = self._cluster.jobs(known)
        for name, errand in known.items():
            found = listed.get(name)
            if found is None and errand.job is not None and not errand.job.is_over:
                found = replace(errand.job, state="COMPLETED")
            if found is not None:
                if errand.job is None:
                    write_json(errand.folder / "job.json", {"number": found.number})
                errand.job, errand.seen = found, True

    def _submit(self, errand: Errand) -> None:
        """Submit the job of a lease, never a second one.

        A command of an earlier run of the agent may still be at it: it holds the lock. What it
        came to shows in the list; the QOS admits one job, whatever we know.
        """
        if is_locked(errand.folder / "submit.lock"):
            return
        lock = os.open(errand.folder / "submit.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if found := self._cluster.jobs([errand.ask.name]).get(errand.ask.name):
                errand.job = found
                return
            self._cluster.add_qos(errand.ask, self._mark)
            number = self._cluster.submit(errand.ask, errand.folder, lock)
        except ClusterRefused as refused:
            late = self._clock.now_ms() > errand.asked_ms + NEW_QOS_SECONDS * 1000
            if "QOSGrpSubmitJobsLimit" in str(refused):
                return  # there is one: the list shows it
            if "nvalid qos" in str(refused) and not late:
                self._wake.set()
                return  # the controller has not heard of it yet
            said = f"the cluster refused its job: {refused}"
            write_json(errand.folder / "exit.json", {"failed": said})
            return
        finally:
            os.close(lock)
        write_json(errand.folder / "job.json", {"number": number})
        errand.job = Job(number, "PENDING")

    def _is_refused(self, errand: Errand) -> bool:
        return (errand.folder / "exit.json").exists() or not errand.folder.exists()

    def _cancel(self, errand: Errand) -> None:
        self._cluster.cancel([errand.ask.name])
        errand.over = True

    def _extend(self, errand: Errand) -> None:
        """Move the time limit, which counts from the job's start: that is no earlier than ours."""
        assert errand.job is not None
        wanted_ms = errand.wanted_ms
        minutes = minutes_until(wanted_ms, now_ms=errand.asked_ms)
        self._cluster.extend(errand.ask.name, errand.job, minutes)
        errand.ends_ms = wanted_ms

    def _compare(self, file: Path) -> None:
        record = read(file)
        granted, name = Granted(**record["granted"]), PREFIX + file.stem
        late = self._clock.now_ms() > record["asked_ms"] + ACCOUNTED_SECONDS * 1000
        known = self._cluster.accounted(name, since_ms=granted.started_ms)
        found = differences(granted, known)
        if not late and any(each.kind in ("missing", "unended") for each in found):
            return  # what it has not heard yet comes
        for each in found:
            self._told(record["gpu_uuid"], name, each)
        with suppress(FileNotFoundError):
            file.unlink()

    def _sweep(self) -> None:
        """Remove the QOS of leases that are over; once also of those whose folders are gone."""
        if not self._swept:
            held = {each.ask.name for each in self._all().values()}
            self._old_qos |= {
                each for each in self._cluster.all_qos(self._mark) if each not in held
            }
            self._swept = True
        if self._old_qos:
            names = sorted(self._old_qos)
            self._cluster.cancel(names)
            self._cluster.remove_qos(names)
            self._old_qos -= set(names)
