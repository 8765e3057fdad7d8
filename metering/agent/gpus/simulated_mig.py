"""MIG instances of made-up cards, by the placement rules of real ones.

Kept in a file where one is given, as the driver's outlive the agent. Source of profiles and places:
NVIDIA Multi-Instance GPU User Guide (R580), "Supported MIG Profiles".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from ..runtimes.keeper import write_json
from .port import Instance, InstanceBusy, InstanceRefused

COMPUTE = 7
SINGLES, PAIRS, TRIPLES, HALVES = tuple(range(7)), (0, 2, 4, 6), (0, 2, 4), (0, 4)
NAMES = {
    "A100": (10, 20, 40, 80),
    "H100": (10, 20, 40, 80),
    "H200": (18, 35, 71, 141),
}
"""GiB of an eighth, a quarter, a half and the whole of a model's memory, as profiles are named."""


@dataclass(frozen=True, slots=True)
class Profile:
    """compute, memory: slices. starts: where it may begin."""

    compute: int
    memory: int
    starts: tuple[int, ...]


def profiles_of(model: str) -> dict[str, Profile]:
    """Return the profiles of a simulated model by name; none: it knows no MIG."""
    if model not in NAMES:
        return {}
    eighth, quarter, half, whole = NAMES[model]
    return {
        f"1g.{eighth}gb": Profile(1, 1, SINGLES),
        f"1g.{eighth}gb+me": Profile(1, 1, SINGLES),
        f"1g.{quarter}gb": Profile(1, 2, PAIRS),
        f"2g.{quarter}gb": Profile(2, 2, TRIPLES),
        f"3g.{half}gb": Profile(3, 4, HALVES),
        f"4g.{half}gb": Profile(4, 4, (0,)),
        f"7g.{whole}gb": Profile(7, 8, (0,)),
    }


class SimulatedMig:
    """The instances on some cards. cards: the model of each card in MIG mode."""

    def __init__(
        self,
        cards: dict[str, str],
        *,
        in_use: Callable[[], Collection[str]],
        kept_in: Path | None = None,
    ) -> None:
        self._cards = cards
        self._in_use = in_use
        self._kept_in = kept_in
        self._there: list[Instance] = []
        if kept_in is not None and kept_in.exists():
            self._there = [Instance(**each) for each in json.loads(kept_in.read_text())["made"]]

    def instances(self, card_uuid: str) -> tuple[Instance, ...]:
        """Return the instances of a card."""
        return tuple(each for each in self._there if each.card_uuid == card_uuid)

    def device(self, uuid: str) -> Instance | None:
        """Return the instance of that UUID."""
        return next((each for each in self._there if each.uuid == uuid), None)

    def make(self, card_uuid: str, name: str, first: int, last: int) -> Instance:
        """Make an instance. Raises: InstanceRefused."""
        if card_uuid not in self._cards:
            raise InstanceRefused("MIG mode is off: nvidia-smi -mig 1 on the host, as root")
        profiles = profiles_of(self._cards[card_uuid])
        profile = profiles.get(name)
        if profile is None:
            names = ", ".join(profiles)
            raise InstanceRefused(f"no MIG profile {name} for this card; it has {names}")
        if first not in profile.starts or last != first + profile.memory - 1:
            raise InstanceRefused(f"the card has no place for {name} at the slices {first}-{last}")
        there = self.instances(card_uuid)
        compute = sum(profiles[each.profile].compute for each in there) + profile.compute
        media = name.endswith("+me") and any(each.profile.endswith("+me") for each in there)
        taken = any(each.first <= last and first <= each.last for each in there)
        if taken or media or compute > COMPUTE:
            raise InstanceRefused(f"{name} at {first}-{last} cannot be made: no room on the card")
        number = next(n for n in range(1, 99) if all(each.number != n for each in there))
        uuid = f"MIG-{uuid5(NAMESPACE_OID, f'{card_uuid}/{number}')}"
        made = Instance(card_uuid, number, name, first, last, uuid)
        self._there.append(made)
        self._save()
        return made

    def remove(self, instance: Instance) -> None:
        """Remove an instance, once. Raises: InstanceBusy."""
        if instance.uuid in self._in_use():
            raise InstanceBusy("a process still uses the MIG instance")
        self._there = [
            each
            for each in self._there
            if (each.card_uuid, each.number) != (instance.card_uuid, instance.number)
        ]
        self._save()

    def _save(self) -> None:
        if self._kept_in is not None:
            write_json(self._kept_in, {"made": [asdict(each) for each in self._there]})
