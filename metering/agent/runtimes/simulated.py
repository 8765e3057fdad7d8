"""Work that is only pretended: for demos with many hosts in one process, and for tests.

It reads `sleep SECONDS`, `true` and `false` as a shell would; every other command runs until it is
stopped. Time is that of the clock it is given, so a demo can run faster than life.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from ..clock import Clock
from .egress import Reach
from .family import stat_of
from .keeper import write_json
from .levels import Sandbox
from .port import StartFailed, Work, WorkSpec
from .used import Used

FIRST_PID = 5_000_000
"""Above every real process id (Linux stops at 4,194,304), so none can be meant by mistake."""
_pids = itertools.count(FIRST_PID)


class SimulatedRuntime:
    """Pretends to run work. `stubborn` leases ignore the request to end.

    What is pretended needs no keeping apart: it reads nothing and writes nothing.

    kept_in: file in which the pretended work outlives this process, as real work outlives its
    agent; without it a restarted agent reports its work as gone.
    """

    trusts_work = True
    runs_images = True
    hands_secrets = True
    reaches: Reach = "open"
    has_folders = False
    images_only = False

    def __init__(self, *, clock: Clock, kept_in: Path | None = None) -> None:
        self._clock = clock
        self._kept_in = kept_in
        self._works: dict[UUID, Work] = {}
        self._pids: dict[int, UUID] = {}
        self._until_ms: dict[UUID, tuple[int, int]] = {}
        self._limits: dict[UUID, tuple[int, int]] = {}
        self._lock = threading.RLock()
        self.notices: dict[UUID, int] = {}
        self.stubborn: set[UUID] = set()
        self.saved_ms: dict[UUID, int] = {}
        self.alive_ms: dict[UUID, tuple[int, int]] = {}
        """Up to when each work says that it is safe."""
        if kept_in is not None and kept_in.exists():
            self._recall(json.loads(kept_in.read_text()))

    @property
    def sandbox(self) -> Sandbox:
        return Sandbox("full", (("everything", "pretended"),))

    def separates(self, gpu_uuids: Collection[str]) -> bool:
        return True

    def start(self, spec: WorkSpec) -> Work:
        with self._lock:
            if spec.lease_id in self._works:
                return self._look(spec.lease_id)
            if spec.command[0].startswith("/nonexistent"):
                raise StartFailed(f"{spec.command[0]}: No such file or directory")
            now_ms = self._clock.now_ms()
            self._works[spec.lease_id] = Work(
                lease_id=spec.lease_id,
                gpu_uuids=spec.gpu_uuids,
                state="running",
                started_ms=now_ms,
                device_uuids=spec.device_uuids,
            )
            self._pids[next(_pids)] = spec.lease_id
            match spec.command:
                case ("sleep", seconds):
                    self._until_ms[spec.lease_id] = now_ms + int(float(seconds) * 1000), 0
                case ("true",) | ("false",):
                    self._until_ms[spec.lease_id] = now_ms, int(spec.command[0] == "false")
            if spec.stop_at_ms is not None and spec.kill_at_ms is not None:
                self._limits[spec.lease_id] = spec.stop_at_ms, spec.kill_at_ms
            self._save()
            return self._look(spec.lease_id)

    def limit(self, lease_id: UUID, *, stop_at_ms: int, kill_at_ms: int) -> None:
        with self._lock:
            if lease_id in self._works and self._look(lease_id).state == "running":
                self._limits[lease_id] = stop_at_ms, kill_at_ms
                self._save()
                self._look(lease_id)

    def works(self) -> Sequence[Work]:
        with self._lock:
            return [self._look(lease_id) for lease_id in self._works]

    def notify(self, lease_id: UUID, *, stop_at_ms: int) -> bool:
        self.notices[lease_id] = stop_at_ms
        return True

    def terminate(self, lease_id: UUID) -> None:
        if lease_id not in self.stubborn:
            self._stop(lease_id, -15)

    def kill(self, lease_id: UUID) -> None:
        self._stop(lease_id, -9)

    def output_of(self, lease_id: UUID) -> Path | None:
        return None

    def forget(self, lease_id: UUID) -> None:
        with self._lock:
            if lease_id in self._works and self._look(lease_id).state == "ended":
                del self._works[lease_id]
                self._pids = {p: lease for p, lease in self._pids.items() if lease != lease_id}
                self._until_ms.pop(lease_id, None)
                self._limits.pop(lease_id, None)
                self._save()

    def folder_of(self, lease_id: UUID) -> Path | None:
        return None

    def lease_of(self, pid: int) -> UUID | None:
        lease_id = self._pids.get(pid)
        return lease_id if lease_id and self._look(lease_id).state == "running" else None

    def name_of(self, pid: int) -> str | None:
        if pid < FIRST_PID:
            stat = stat_of(pid)
            return None if stat is None else stat.name
        return "simulated" if self.lease_of(pid) else None

    def used(self) -> Mapping[UUID, Used]:
        return {}

    def holders(self) -> Mapping[str, Sequence[int]]:
        with self._lock:
            found: dict[str, list[int]] = {}
            for pid, lease_id in self._pids.items():
                work = self._look(lease_id)
                for uuid in work.devices if work.state == "running" else ():
                    found.setdefault(uuid, []).append(pid)
            return found

    def _look(self, lease_id: UUID) -> Work:
        work = self._works[lease_id]
        if work.state == "running":
            until_ms, code = self._until_ms.get(lease_id, (None, 0))
            stopped = False
            if limit := self._limits.get(lease_id):
                place = 1 if lease_id in self.stubborn else 0
                if until_ms is None or limit[place] < until_ms:
                    until_ms, code, stopped = limit[place], (-15, -9)[place], True
            if until_ms is not None and until_ms <= self._clock.now_ms():
                ended_ms = max(until_ms, work.started_ms)
                work = replace(work, state="ended", ended_ms=ended_ms, exit_code=code)
                work = replace(work, stopped=stopped)
                self._works[lease_id] = work
        saved_ms, alive_ms = self.saved_ms.get(lease_id), self.alive_ms.get(lease_id)
        return replace(work, saved_ms=saved_ms, alive_ms=alive_ms)

    def _stop(self, lease_id: UUID, code: int) -> None:
        with self._lock:
            if lease_id in self._works and self._look(lease_id).state == "running":
                self._until_ms[lease_id] = self._clock.now_ms(), code
                self._save()
                self._look(lease_id)

    def _save(self) -> None:
        if self._kept_in is None:
            return
        works = [
            {
                "lease_id": str(work.lease_id),
                "gpu_uuids": list(work.gpu_uuids),
                "device_uuids": list(work.device_uuids),
                "started_ms": work.started_ms,
                "until": self._until_ms.get(work.lease_id),
                "limit": self._limits.get(work.lease_id),
            }
            for work in self._works.values()
        ]
        write_json(self._kept_in, {"works": works})

    def _recall(self, kept: dict[str, Any]) -> None:
        for each in kept["works"]:
            lease_id = UUID(each["lease_id"])
            self._works[lease_id] = Work(
                lease_id=lease_id,
                gpu_uuids=tuple(each["gpu_uuids"]),
                state="running",
                started_ms=each["started_ms"],
                device_uuids=tuple(each.get("device_uuids", ())),
            )
            self._pids[next(_pids)] = lease_id
            if each["until"] is not None:
                until_ms, code = each["until"]
                self._until_ms[lease_id] = until_ms, code
            if each.get("limit") is not None:
                stop_ms, kill_ms = each["limit"]
                self._limits[lease_id] = stop_ms, kill_ms
