"""The MIG instances that this agent makes for leases, and removes after them.

NVML lends no mark of who made an instance. So what is to be made is written down first, at a place
that was seen to be free, and what was made right after; whatever dies in between, the next run
removes what stands at that place, and touches nothing else. Instances do not outlive a restart of
the host: what was written down before it is void.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID

from .clock import kernel_boot_id
from .gpus.port import GpuFault, Gpus, Instance, InstanceBusy, InstanceRefused
from .runtimes.keeper import write_json
from .shares import Slice, card_of, slice_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """An instance of a lease. number, device: as NVML has them; None: it is only about to be."""

    lease: str
    gpu: str
    number: int | None = None
    device: str | None = None


class Instances:
    """Keeps the record in `file`; one agent's, under whose lock it is used."""

    def __init__(self, gpus: Gpus, file: Path, *, boot: str | None = None) -> None:
        self._gpus = gpus
        self._file = file
        self._boot = boot or kernel_boot_id()
        self._made: dict[str, Made] = {}
        self._told: set[str] = set()
        if file.exists():
            record = json.loads(file.read_text())
            if record["boot"] == self._boot:
                self._made = {each["gpu"]: Made(**each) for each in record["made"]}

    @property
    def devices(self) -> frozenset[str]:
        """Return the UUIDs of all instances that are this agent's."""
        return frozenset(each.device for each in self._made.values() if each.device is not None)

    def device_of(self, uuid: str) -> str:
        """Return what the driver calls a GPU: of a share its card, of an instance the instance."""
        made = self._made.get(uuid)
        return card_of(uuid) if made is None or made.device is None else made.device

    def make(self, lease_id: UUID, uuids: Iterable[str]) -> tuple[str, ...]:
        """Make the instances of a lease, if any; return what the driver calls its GPUs.

        What was made for this lease before is taken as it is.

        Raises: InstanceRefused; InstanceBusy, GpuFault: ask again.
        """
        uuids = tuple(uuids)
        for uuid in uuids:
            wanted = slice_of(uuid)
            if wanted is not None:
                self._make(str(lease_id), uuid, wanted)
        return tuple(dict.fromkeys(map(self.device_of, uuids)))

    def settle(self) -> None:
        """Remove what was about to be made when an earlier run ended, or the driver failed."""
        for made in [each for each in self._made.values() if each.number is None]:
            try:
                self._take_back(made)
            except (GpuFault, InstanceBusy, InstanceRefused) as trouble:
                self._tell(made, trouble)

    def tidy(self, held: Collection[UUID]) -> list[str]:
        """Remove the instances of leases that are not `held`; return what those were called."""
        names = set(map(str, held))
        removed = []
        for made in [each for each in self._made.values() if each.lease not in names]:
            try:
                self._take_back(made)
            except (GpuFault, InstanceBusy, InstanceRefused) as trouble:
                self._tell(made, trouble)  # asked for again at the next tick
            else:
                removed += [] if made.device is None else [made.device]
        return removed

    def _make(self, lease: str, uuid: str, wanted: Slice) -> None:
        made = self._made.get(uuid)
        if made is not None:
            if made.lease == lease and self._found(made) is not None and made.device is not None:
                return
            self._take_back(made)
        for other in self._gpus.instances(wanted.card_uuid):
            if other.first <= wanted.last and wanted.first <= other.last:
                mine = other.uuid in self.devices
                problem = f"{other.profile} at {other.first}-{other.last} takes its room"
                if mine:
                    raise InstanceBusy(problem)
                raise InstanceRefused(f"{wanted.profile} cannot be made: the host's own {problem}")
        intent = Made(lease, uuid)
        self._keep(intent)
        try:
            instance = self._gpus.make_instance(
                wanted.card_uuid, wanted.profile, wanted.first, wanted.last
            )
        except (InstanceRefused, InstanceBusy):
            self._drop(intent)  # nothing was made
            raise
        self._keep(replace(intent, number=instance.number, device=instance.uuid))
        log.info("lease %s: made %s as %s", lease, uuid, instance.uuid)

    def _take_back(self, made: Made) -> None:
        """Remove an instance, if it is still there, and its record."""
        instance = self._found(made)
        if instance is not None:
            self._gpus.remove_instance(instance)
            log.info("lease %s: removed %s", made.lease, made.gpu)
        self._drop(made)

    def _found(self, made: Made) -> Instance | None:
        """Return the instance that a record speaks of; None: it is not there (any more)."""
        wanted = slice_of(made.gpu)
        assert wanted is not None
        for each in self._gpus.instances(wanted.card_uuid):
            at_place = (each.profile, each.first, each.last) == (
                wanted.profile,
                wanted.first,
                wanted.last,
            )
            same = made.number is None or (each.number, each.uuid) == (made.number, made.device)
            if at_place and same:
                return each
        return None

    def _keep(self, made: Made) -> None:
        self._made[made.gpu] = made
        self._save()

    def _drop(self, made: Made) -> None:
        self._made.pop(made.gpu, None)
        self._told.discard(made.gpu)
        self._save()

    def _save(self) -> None:
        records = [asdict(each) for each in self._made.values()]
        write_json(self._file, {"boot": self._boot, "made": records})

    def _tell(self, made: Made, trouble: Exception) -> None:
        if made.gpu not in self._told:
            self._told.add(made.gpu)
            log.warning("lease %s: %s is not removed yet: %s", made.lease, made.gpu, trouble)
