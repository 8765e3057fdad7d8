"""Which GPUs this host has, looked at from time to time."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .backoff import Backoff
from .gpus.port import GpuFault, Gpus
from .instances import Instances
from .measured import measured
from .wire import Gpu, Measured

log = logging.getLogger(__name__)

INVENTORY_MS = 600_000


class Inventory:
    """What was found last.

    A driver that does not answer is asked ever less often, and told once.
    """

    def __init__(self, gpus: Gpus, instances: Instances) -> None:
        self._gpus = gpus
        self._instances = instances
        self._backoff = Backoff()
        self._looked_ms: int | None = None
        self._trouble = ""
        self.gpus: tuple[Gpu, ...] = ()
        self.measures: tuple[Measured, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return the ids of the GPUs."""
        return tuple(gpu.uuid for gpu in self.gpus)

    def look(self, now_ms: int) -> tuple[Gpu, ...] | None:
        """Return the GPUs when it is time to look again; None: it is not, or nobody answers."""
        if self._looked_ms is not None and now_ms - self._looked_ms < INVENTORY_MS:
            return None
        if not self._backoff.is_due(now_ms):
            return None
        try:
            found = tuple(self._gpus.inventory(self._instances.devices))
        except GpuFault as fault:
            self._backoff.failed(now_ms)
            if str(fault) != self._trouble:
                log.warning("the GPUs cannot be listed: %s", fault)
            self._trouble = str(fault)
            return None
        self._backoff.succeeded()
        if self._trouble:
            log.warning("the GPUs can be listed again")
        self._trouble = ""
        self._looked_ms = now_ms
        self.gpus, self.measures = found, measured(self._gpus, [each.uuid for each in found])
        return found

    def look_again(self) -> None:
        """Look at the next opportunity: something has changed."""
        self._looked_ms = None

    def absent(self, uuids: Iterable[str]) -> list[str]:
        """Return those of `uuids` that this host has not; none while nobody has looked."""
        if self._looked_ms is None:
            return []
        return sorted(set(uuids) - set(self.uuids))
