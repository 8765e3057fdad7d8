"""How busy a MIG instance is, by NVML's GPU Performance Monitoring (Hopper and later).

Facts it rests on (NVML reference, "GPM"): a metric is worked out of two samples that are taken of
the card for a GPU instance; GRAPHICS_UTIL is the percentage of time in which any of its work was
active. It is of the instance as a whole and never by process. Nothing of the card is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Followed:
    """An instance: its card and number there, the sample taken last and when, what it came to."""

    card: Any
    number: int
    sample: Any
    at_us: int
    busy_us: int = 0


class Gpm:
    """Adds up for how long the work of each instance was active. ticking: microseconds."""

    def __init__(self, nvml: Any, *, ticking: Callable[[], int]) -> None:
        self._nvml = nvml
        self._ticking = ticking
        self._followed: dict[str, Followed] = {}
        self._without: set[str] = set()

    def busy_us(self, device: Any, uuid: str) -> int | None:
        """Return for how long an instance was busy since it was asked for first.

        None: this card does not tell. After a failure it counts from 0 again.
        """
        if uuid in self._without:
            return None
        try:
            return self._look(device, uuid)
        except self._nvml.NVMLError:
            self.forget(uuid)
            return None

    def measures(self, device: Any) -> bool:
        """Tell if the card of an instance can tell. Raises: NVMLError."""
        card = self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        return bool(self._nvml.nvmlGpmQueryDeviceSupport(card).isSupportedDevice)

    def forget(self, uuid: str) -> None:
        """Let go of an instance."""
        known = self._followed.pop(uuid, None)
        if known is not None and known.sample is not None:
            self._free(known.sample)

    def pause(self) -> None:
        """Count up to now and let go of all, as the driver is let go of.

        What cannot be counted, for the driver is gone, counts from 0 again.
        """
        self._without.clear()
        for uuid, known in list(self._followed.items()):
            try:
                self._count(known)
            except self._nvml.NVMLError:
                self.forget(uuid)
                continue
            self._free(known.sample)
            known.card = known.sample = None

    def resume(self) -> None:
        """Go on counting, right after the driver was asked for anew."""
        for uuid, known in list(self._followed.items()):
            try:
                device = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
                known.card = self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
                known.sample, known.at_us = self._sample(known.card, known.number), self._ticking()
            except self._nvml.NVMLError:
                self.forget(uuid)

    def _look(self, device: Any, uuid: str) -> int | None:
        nvml, known = self._nvml, self._followed.get(uuid)
        if known is None:
            if not self.measures(device):
                self._without.add(uuid)
                return None
            card = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
            number = nvml.nvmlDeviceGetGpuInstanceId(device)
            sample = self._sample(card, number)
            self._followed[uuid] = Followed(card, number, sample, self._ticking())
            return 0
        self._count(known)
        return known.busy_us

    def _count(self, known: Followed) -> None:
        now_us = self._ticking()
        if now_us <= known.at_us:
            return
        nvml = self._nvml
        sample = self._sample(known.card, known.number)
        try:
            part = self._part(known.sample, sample)
        except nvml.NVMLError:
            self._free(sample)
            raise
        self._free(known.sample)
        known.busy_us += round((now_us - known.at_us) * part)
        known.sample, known.at_us = sample, now_us

    def _sample(self, card: Any, number: int) -> Any:
        sample = self._nvml.nvmlGpmSampleAlloc()
        try:
            return self._nvml.nvmlGpmMigSampleGet(card, number, sample)
        except self._nvml.NVMLError:
            self._free(sample)
            raise

    def _part(self, earlier: Any, later: Any) -> float:
        """Return the part of the time between two samples in which there was work, 0 to 1."""
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = earlier, later
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        nvml.nvmlGpmMetricsGet(asked)
        nvml._nvmlCheckReturn(asked.metrics[0].nvmlReturn)
        percent = float(asked.metrics[0].value)
        if not 0 <= percent <= 101:  # also what is no number
            raise nvml.NVMLError(nvml.NVML_ERROR_UNKNOWN)
        return min(percent, 100.0) / 100

    def _free(self, sample: Any) -> None:
        try:
            self._nvml.nvmlGpmSampleFree(sample)
        except self._nvml.NVMLError:
            return  # the driver is gone, and with it the sample
