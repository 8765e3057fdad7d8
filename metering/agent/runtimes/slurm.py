"""Leased work as jobs on the owner's own Slurm cluster, of which this host is a node.

Each lease is one job under a QOS of its own, and what the job runs is the keeper (keeper.py): so
deadline, output, checkpoint, exit code and confinement are as of other work, and hold with the
cluster's controller away. The cluster gives the GPUs, the cores and the memory, keeps its own
jobs off them, and ends the job should all else fail. See slurm_errands.py for how it is asked.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from ..clock import Clock
from ..shares import cards_of
from .confinement import Confinement
from .inside import groups_of
from .judging import KEEPER_KILLED, unbegun
from .keeper import Deadline, write_json
from .launching import Launch
from .levels import Sandbox
from .limits import LIMITS, Limits
from .port import StartFailed, Work, WorkSpec
from .process import OUTPUT_BYTES_MAX, ProcessRuntime
from .records import is_locked, read
from .slurm_commands import Ask, ClusterAway, ClusterRefused, Slurm
from .slurm_errands import Errands
from .slurm_facts import (
    ENDS,
    PREFIX,
    Difference,
    Granted,
    gres_of,
    minutes_until,
)
from .slurm_levels import sandbox_of
from .slurm_secrets import Handover
from .users import WorkUser, WorkUsers

WHOLE_ONLY = "this host's work runs on a Slurm cluster, which gives whole cards only"
NO_SECRETS = (
    "this host's work runs on a Slurm cluster, whose jobs are handed secrets in bubblewrap only,"
    " by an agent that is root, through memory at /run"
)
OF_A_JOB = re.compile(r"/job_[0-9]+(/|$)")
"""In the names of Slurm's control groups: others are the daemon's, which is no lease's."""
TOLD_MS = 10_000
"""How long the cluster is asked what it did to a job whose keeper is dead."""
LONGEST_MS = 365 * 24 * 3600 * 1000


class SlurmRuntime(ProcessRuntime):
    """Runs commands as jobs of a cluster.

    limits: where they bound neither cores nor memory, the job has its GPUs' share of the node's.
    pause: seconds between looks at the cluster; None: as what runs there needs it.
    """

    def __init__(
        self,
        folder: Path,
        cluster: Slurm,
        *,
        clock: Clock,
        users: WorkUsers | None = None,
        account: str | None = None,
        confinement: Confinement | None = None,
        limits: Limits = LIMITS,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        pause: float | None = None,
        handover: Handover | None = None,
    ) -> None:
        super().__init__(
            folder,
            clock=clock,
            users=users,
            account=account,
            confinement=confinement,
            limits=limits,
            output_bytes_max=output_bytes_max,
            needs_mps=False,
        )
        self._cluster = cluster
        self._findings: list[tuple[str, str]] = []
        self._unkept: dict[UUID, int] = {}
        self._errands = Errands(
            cluster, folder / "slurm", clock=clock, told=self._differs, pause=pause
        )
        self._settings: dict[str, str] | None = None
        self._handover = Handover.for_agent(folder) if handover is None else handover

    fetches = False

    @property
    def hands_secrets(self) -> bool:
        """Tell if all work here can be handed secrets."""
        return self._confinement is not None and self._handover.is_possible

    @property
    def sandbox(self) -> Sandbox:
        if self._settings is None:
            with suppress(ClusterAway, ClusterRefused):
                self._settings = self._cluster.settings()
        return sandbox_of(self._settings or {}, self._users, self._confinement)

    def unable(self) -> str:
        """Return why no job of ours begins on this node; empty: some do."""
        return super().unable() or self._errands.standing.why

    def start(self, spec: WorkSpec) -> Work:
        self._take_up()
        if spec.lease_id in self._works:
            return self._look(spec.lease_id)
        if spec.devices != spec.gpu_uuids or cards_of(spec.gpu_uuids) != spec.gpu_uuids:
            raise StartFailed(WHOLE_ONLY)
        if spec.secrets and not self.hands_secrets:
            raise StartFailed(NO_SECRETS)
        return super().start(spec)

    def limit(self, lease_id: UUID, *, stop_at_ms: int, kill_at_ms: int) -> None:
        super().limit(lease_id, stop_at_ms=stop_at_ms, kill_at_ms=kill_at_ms)
        self._errands.extend(lease_id, ends_ms=kill_at_ms)

    def terminate(self, lease_id: UUID) -> None:
        if not self._withdraw(lease_id):
            super().terminate(lease_id)

    def kill(self, lease_id: UUID) -> None:
        if not self._withdraw(lease_id):
            super().kill(lease_id)

    def _groups_within(self, lease_id: UUID, pid: int) -> Sequence[Path]:
        """Return the control groups of a lease's job; none on a cluster that only counts."""
        return tuple(each for each in groups_of(pid) if OF_A_JOB.search(str(each)))

    def findings(self) -> Sequence[tuple[str, str]]:
        """Return in what the cluster's accounting differs from what was measured, each once."""
        found, self._findings = self._findings, []
        return found

    def close(self) -> None:
        """Go to the cluster no more; stops no work."""
        self._errands.close()

    def _differs(self, gpu_uuid: str, name: str, difference: Difference) -> None:
        self._findings.append((gpu_uuid, f"{name}: {difference.kind}: {difference.text}"))

    # --- starting --------------------------------------------------------------------------------

    def _disk_bytes(self, user: WorkUser | None, contained: Mapping[str, Any] | None) -> int:
        return 0

    def _begin(self, launch: Launch, lock: int, spec: WorkSpec) -> bytes:
        """Have a job for a lease; what becomes of it shows later."""
        folder, user = launch.folder, launch.user
        try:
            if spec.stop_at_ms is not None and spec.kill_at_ms is not None:
                self.limit(spec.lease_id, stop_at_ms=spec.stop_at_ms, kill_at_ms=spec.kill_at_ms)
            order = launch.order() | {
                "own_user": user.uid if user is not None and self._are_alone() else None,
                "limits": self._limits.resources(),
                "groups": [],  # the job's own, which it must not leave
                "output_bytes_max": self._output_bytes_max,
            }
            handed = {name: order.pop(name) for name in ("secrets",) if name in order}
            if handed:
                order["secrets_at"] = str(self._handover.put(spec.lease_id, handed))
            write_json(folder / "order.json", order)
        finally:
            os.close(lock)
        ends_ms = spec.kill_at_ms or self._clock.now_ms() + LONGEST_MS
        self._errands.want(spec.lease_id, self._ask(spec, ends_ms), folder, ends_ms=ends_ms)
        return b""

    def _ask(self, spec: WorkSpec, ends_ms: int) -> Ask:
        return Ask(
            name=f"{PREFIX}{spec.lease_id}",
            gres=gres_of(spec.gpu_uuids),
            gpus=len(spec.gpu_uuids),
            cores=self._limits.cpus,
            memory_mib=self._limits.memory_bytes >> 20,
            minutes=minutes_until(ends_ms, now_ms=self._clock.now_ms()),
        )

    def _take_up(self) -> None:
        first = not self._taken_up
        super()._take_up()
        if first:
            self._handover.keep_only(self._works)
        self._errands.ready()

    def _find(self, folder: Path) -> None:
        try:
            lease_id = UUID(folder.name)
        except ValueError:
            return
        spec = read(folder / "spec.json")
        if not spec or not self._errands.take_up(lease_id, folder):
            super()._find(folder)  # nothing was asked of the cluster yet
            return
        if spec.get("uid") is not None:
            self._uids[lease_id] = int(spec["uid"])
        self._know(lease_id, tuple(spec["gpu_uuids"]), tuple(spec.get("device_uuids", ())))
        self._look(lease_id)

    # --- as it stands ----------------------------------------------------------------------------

    def _look(self, lease_id: UUID) -> Work:
        work = self._as_it_stands(lease_id)
        if work.state == "ended":
            self._handover.drop(lease_id)
        return work

    def _as_it_stands(self, lease_id: UUID) -> Work:
        known, folder = self._works[lease_id], self._folder_of(lease_id)
        if known.state == "ended":
            return known
        if not (self._roots.get(lease_id) or read(folder / "started.json")):
            self._works[lease_id] = self._unbegun(known, folder)
            return self._works[lease_id]
        self._works[lease_id] = replace(known, detail="")  # it waits no more
        work = super()._look(lease_id)
        if work.state != "ended":
            return work
        by_cluster = work.detail == KEEPER_KILLED or (folder / "cancelled.json").exists()
        if by_cluster and not self._is_told(lease_id):
            self._works[lease_id] = replace(known, state="ending")
            return self._works[lease_id]
        self._works[lease_id] = work = self._ended_there(work, folder)
        if work.ended_ms is not None:
            granted = Granted(work.started_ms, work.ended_ms, len(work.gpu_uuids))
            self._errands.compare(lease_id, granted, gpu_uuid=work.gpu_uuids[0])
        return work

    def _unbegun(self, work: Work, folder: Path) -> Work:
        """Return work whose command has not begun: it may wait in the queue for long."""
        job = self._errands.job(work.lease_id)
        if is_locked(folder / "keeper.lock"):
            return work
        if (folder / "exit.json").exists():
            return unbegun(work, folder)
        if job is not None and job.is_over and self._errands.is_sure(work.lease_id):
            if (folder / "started.json").exists():
                return work  # it began between two looks of ours
            return replace(work, state="ended", lost=True, detail=f"it never began: {job.says}")
        waits = "" if job is None or job.reason == "None" else job.reason
        return replace(work, detail=f"it waits on the cluster: {waits}" if waits else "")

    def _is_told(self, lease_id: UUID) -> bool:
        """Tell if the cluster said what it did to a job that it ended, or will not say it."""
        now_ms = self._clock.now_ms()
        since_ms = self._unkept.setdefault(lease_id, now_ms)
        job = self._errands.job(lease_id)
        self._errands.hurry()
        return (job is not None and job.is_over) or now_ms > since_ms + TOLD_MS

    def _ended_there(self, work: Work, folder: Path) -> Work:
        """Return ended work with what the cluster had to do with its end."""
        seen_ms = self._unkept.pop(work.lease_id, None)
        if seen_ms is not None and work.ended_ms is not None:
            work = replace(work, ended_ms=min(work.ended_ms, seen_ms))
        job = self._errands.job(work.lease_id)
        if work.detail == KEEPER_KILLED and job is not None and job.is_over:
            return replace(work, detail=f"{job.says}; {KEEPER_KILLED}")
        asked = read(folder / "cancelled.json").get("boot_ns")
        due = Deadline.read(folder / "deadline.json")  # set to that moment, had it been later
        by_us = due is not None and due.stop_ns is not None and due.stop_ns < (asked or 0)
        if asked is None or by_us or work.lost:
            return work
        said = job is not None and job.is_over and job.state in ENDS
        detail = job.says if job is not None and said else "the cluster asked its job to end"
        return replace(work, lost=True, detail=detail)

    def _withdraw(self, lease_id: UUID) -> bool:
        """Give up work that has not begun; returns whether it had not, and now never will."""
        folder = self._folder_of(lease_id)
        if lease_id not in self._works or (folder / "started.json").exists():
            return False
        lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / "started.json").exists():
                return False  # and it is over again
            if not (folder / "exit.json").exists():
                why = self._works[lease_id].detail or "it waits on the cluster"
                write_json(folder / "exit.json", {"failed": f"it never began: {why}"})
        except BlockingIOError:
            return False  # it begins at this moment
        finally:
            os.close(lock)
        self._errands.withdraw(lease_id)
        self._handover.drop(lease_id)
        return True

    def _put_away(self, lease_id: UUID) -> None:
        super()._put_away(lease_id)
        self._handover.drop(lease_id)
        if lease_id not in self._leaving:
            self._errands.drop(lease_id)
