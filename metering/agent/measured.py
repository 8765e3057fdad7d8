"""How it is measured what each GPU of this host does, as the agent says it to owner and market."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .gpus.port import GpuFault, Gpus
from .wire_of_hosts import Measured

HOW: Mapping[str, str] = {
    "processes": "busy time is measured by process",
    "processes and accounts": "busy time is measured by process, of short ones by its accounts",
    "instance": "busy time is measured of the instance as a whole (GPM)",
    "": "busy time cannot be measured here (MIG) and is reported as unknown",
}


def measured(gpus: Gpus, uuids: Iterable[str]) -> tuple[Measured, ...]:
    """Return how each of these GPUs is measured; without those that do not answer."""
    found = []
    for uuid in uuids:
        try:
            busy_by, energy = gpus.busy_by(uuid), gpus.energy(uuid) is not None
        except GpuFault:
            continue
        found.append(Measured(gpu_uuid=uuid, busy_by=busy_by, energy=energy))
    return tuple(found)
