"""What the cards of leases take, in millijoules, from counters that the driver keeps of each card.

A counter counts since the driver was loaded: one that fell is a new base. What was not counted
throughout is not known, and never 0. Dividing a card's energy is the rule in `sharing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from .gpus.port import Energy, GpuFault, Gpus
from .meters import Meter
from .shares import share_of
from .sharing import WHOLE_PPM, Sharer, energy_parts

Key = tuple[UUID, str]


@dataclass(slots=True)
class Pool:
    """The counter of one card. base_mj: at `base_ms`, up to where it is divided; then the newest.

    others_us_percent: how busy others than its leases kept it since.
    """

    base_mj: int
    base_ms: int
    newest_mj: int
    newest_ms: int
    others_us_percent: int = 0


class Energies:
    """Reads the counters and divides what they count among the meters of each card.

    device_of: what the driver calls a GPU; a card, or a MIG instance.
    """

    def __init__(self, gpus: Gpus, *, device_of: Callable[[str], str]) -> None:
        self._gpus = gpus
        self._device_of = device_of
        self._said: dict[str, Energy] = {}
        self._pools: dict[str, Pool] = {}

    def read(self, devices: Iterable[str], meters: Mapping[Key, Meter], now_ms: int) -> None:
        """Read the counters of the cards of these devices, each once."""
        read = set[str]()
        for device in devices:
            known = self._said.get(device)
            if known is not None and known.card_uuid in read:
                continue
            try:
                said = self._gpus.energy(device)
            except GpuFault:
                said = None
            if said is None:
                self.lose(device, meters)
                continue
            self._said[device] = said
            if said.card_uuid not in read:
                read.add(said.card_uuid)
                self._take(said, meters, now_ms)

    def lose(self, device: str, meters: Mapping[Key, Meter]) -> None:
        """Note that a counter could not be read: how much it counted for whom is not known."""
        said = self._said.get(device)
        if said is None:
            for (_, uuid), meter in meters.items():
                if self._device_of(uuid) == device:
                    meter.energy_known = False
            return
        self._pools.pop(said.card_uuid, None)
        self._unknown(said.card_uuid, meters)

    def divide(self, device: str, meters: Mapping[Key, Meter]) -> None:
        """Give the leases of a device's card their parts of what was counted since the last time.

        Their `weight_us_percent` says how busy each kept its device since then.
        """
        said = self._said.get(device)
        pool = None if said is None else self._pools.get(said.card_uuid)
        if said is None or pool is None:
            return
        mine = {
            key: each for key, each in meters.items() if self._card_of(key[1]) == said.card_uuid
        }
        length_ms = pool.newest_ms - pool.base_ms
        if length_ms <= 0:
            return
        sharers = [self._sharer(key[1], each, pool) for key, each in mine.items()]
        parts = energy_parts(
            pool.newest_mj - pool.base_mj,
            length_ms,
            sharers,
            others_us_percent=pool.others_us_percent,
        )
        for meter, part in zip(mine.values(), parts, strict=True):
            meter.energy_mj += part
            meter.weight_us_percent = 0
        pool.base_mj, pool.base_ms = pool.newest_mj, pool.newest_ms
        pool.others_us_percent = 0

    def add_others(self, device: str, us_percent: int) -> None:
        """Note that others than its leases kept a card busy."""
        said = self._said.get(device)
        if said is not None and (pool := self._pools.get(said.card_uuid)) is not None:
            pool.others_us_percent += us_percent * said.slices // said.of

    def together(self, devices: Iterable[str], others: Iterable[str]) -> list[str]:
        """Return devices and those of `others` that are on their cards."""
        found = dict.fromkeys(devices)
        cards = {self._said[each].card_uuid for each in found if each in self._said}
        known = (each for each in others if each in self._said)
        return list(found | dict.fromkeys(e for e in known if self._said[e].card_uuid in cards))

    def counts(self, uuid: str) -> bool:
        """Tell if the counter of a GPU's card is being followed."""
        card = self._card_of(uuid)
        return card is not None and card in self._pools

    def drop(self, device: str) -> None:
        """Forget a device that was removed."""
        self._said.pop(device, None)

    def keep(self, uuids: Iterable[str]) -> None:
        """Follow the counters of these GPUs' cards only: the others are read anew when leased."""
        cards = {self._card_of(uuid) for uuid in uuids}
        for card in self._pools.keys() - cards:
            del self._pools[card]

    def _card_of(self, uuid: str) -> str | None:
        said = self._said.get(self._device_of(uuid))
        return None if said is None else said.card_uuid

    def _sharer(self, uuid: str, meter: Meter, pool: Pool) -> Sharer:
        said, share = self._said[self._device_of(uuid)], share_of(uuid)
        part_ppm = WHOLE_PPM * said.slices // said.of
        busy = meter.weight_us_percent * said.slices // said.of
        if share is not None:
            part_ppm = part_ppm * share.compute_percent // 100
        until_ms = meter.ends_ms if meter.over_ms is None else min(meter.ends_ms, meter.over_ms)
        return Sharer(
            part_ppm=part_ppm,
            granted_ms=min(pool.newest_ms, until_ms) - pool.base_ms,
            busy_us_percent=busy if meter.busy_known else None,
        )

    def _take(self, said: Energy, meters: Mapping[Key, Meter], now_ms: int) -> None:
        pool = self._pools.get(said.card_uuid)
        if pool is not None and said.millijoules >= pool.newest_mj:
            pool.newest_mj, pool.newest_ms = said.millijoules, now_ms
            return
        if pool is not None:
            self._unknown(said.card_uuid, meters)  # the driver was loaded anew in between
        counted = said.millijoules
        self._pools[said.card_uuid] = Pool(counted, now_ms, counted, now_ms)

    def _unknown(self, card: str, meters: Mapping[Key, Meter]) -> None:
        for (_, uuid), meter in meters.items():
            if self._card_of(uuid) == card:
                meter.energy_known, meter.energy_mj = False, 0
