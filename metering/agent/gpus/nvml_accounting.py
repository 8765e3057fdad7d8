"""Whole lives of processes, where a card's accounting mode is on. It is never switched here.

Facts it rests on (NVML reference, "Accounting Statistics"): kept of processes that run and that
ended, in a circular buffer; `time` is 0 while one runs, then its life in milliseconds; of an id
that was used again the last process is told; off with MIG on; switching it needs root.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .port import Life

TOLD_MAX = 256


class Accounting:
    """Tells which processes ended last, the latest `TOLD_MAX` since the first look."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._on: dict[str, bool] = {}
        self._known: dict[str, Counter[int]] = {}
        self._running: dict[str, set[int]] = {}
        self._ended: dict[str, list[Life]] = {}

    def is_on(self, card: Any, uuid: str) -> bool:
        """Tell if a card keeps accounts of its processes, as of the first time it was asked."""
        if uuid not in self._on:
            nvml = self._nvml
            try:
                mode = nvml.nvmlDeviceGetAccountingMode(card)
            except nvml.NVMLError:
                mode = nvml.NVML_FEATURE_DISABLED
            self._on[uuid] = mode == nvml.NVML_FEATURE_ENABLED
        return self._on[uuid]

    def ended(self, card: Any, uuid: str) -> tuple[Life, ...]:
        """Return the lives that ended, the latest last."""
        if not self.is_on(card, uuid):
            return ()
        nvml = self._nvml
        try:
            listed = Counter(nvml.nvmlDeviceGetAccountingPids(card))
        except nvml.NVMLError:
            self._on[uuid] = False
            return ()
        first = uuid not in self._known
        known, running = self._known.get(uuid, Counter()), self._running.setdefault(uuid, set())
        # An id that stands there once more often was used again.
        asked = {pid for pid, times in listed.items() if times > known[pid]} | running
        self._known[uuid] = listed
        found = self._ended.setdefault(uuid, [])
        for pid in sorted(asked):
            life = self._life(card, pid)
            running.discard(pid)
            if life is None:
                continue
            if life.length_ms == 0:
                running.add(pid)
            elif not first:
                found.append(life)
        del found[:-TOLD_MAX]
        return tuple(found)

    def ask_again(self) -> None:
        """Ask anew whether cards keep accounts: the driver may be another one."""
        self._on.clear()

    def _life(self, card: Any, pid: int) -> Life | None:
        nvml = self._nvml
        try:
            said = nvml.nvmlDeviceGetAccountingStats(card, pid)
        except nvml.NVMLError:
            return None  # the buffer went round
        if said.gpuUtilization > 100:
            return None
        length_ms = 0 if said.isRunning else int(said.time)
        return Life(pid, int(said.startTime), length_ms, int(said.gpuUtilization))
