"""Made-up GPUs that answer like real ones: for demos and tests on hosts without a GPU.

Everything follows from the seed and the clock, so two runs give the same UUIDs and the same load.
Which processes are on a GPU is asked of `holders`, usually the runtime that starts the work.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from ..clock import Clock
from ..wire import Gpu
from .port import (
    BusyBy,
    CardMode,
    Energy,
    FaultKind,
    GpuFault,
    Instance,
    Link,
    Reading,
    Resident,
    Utilisation,
    Wear,
    Xid,
)
from .simulated_mig import COMPUTE, NAMES, SimulatedMig, profiles_of

GPUS_MAX = 256
FAULTS = "simulated-faults.json"
OFF_THE_BUS = 79
DRIVER = "580.82.07"
Holders = Callable[[], Mapping[str, Sequence[int]]]
"""Returns the process ids on each GPU UUID."""


@dataclass(frozen=True, slots=True)
class Model:
    """The figures of a model's public data sheet that a bid can ask for. watts: at most."""

    name: str
    memory_mib: int
    compute_capability: str
    nvlink: bool
    watts: int


MODELS = {
    "H200": Model("NVIDIA H200", 143_771, "9.0", True, 700),
    "H100": Model("NVIDIA H100 80GB HBM3", 81_559, "9.0", True, 700),
    "A100": Model("NVIDIA A100-SXM4-80GB", 81_920, "8.0", True, 400),
    "L40S": Model("NVIDIA L40S", 46_068, "8.9", False, 350),
    "L4": Model("NVIDIA L4", 23_034, "8.9", False, 72),
    "A10": Model("NVIDIA A10", 23_028, "8.6", False, 150),
    "RTX4090": Model("NVIDIA GeForce RTX 4090", 24_564, "8.9", False, 450),
    "V100": Model("NVIDIA Tesla V100-SXM2-32GB", 32_768, "7.0", True, 300),
}


def parse_models(text: str) -> tuple[str, ...]:
    """Return one model name per GPU of a text such as "H100:8", "H100:4,L4:2" or "H100@mig:2".

    Raises: ValueError, with what is wrong.
    """
    found: list[str] = []
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        model, _, mode = name.upper().partition("@")
        if mode and (mode != "MIG" or not profiles_of(model)):
            raise ValueError(f"{part!r}: only {', '.join(NAMES)} can be in MIG mode, as H100@mig:2")
        if model not in MODELS:
            raise ValueError(f"unknown GPU model {name!r}; known are {', '.join(MODELS)}")
        if not (count or "1").isascii() or not (count or "1").isdigit() or int(count or 1) < 1:
            raise ValueError(f"{part!r}: write a model and a number, such as H100:8")
        found += [name.upper()] * min(int(count or 1), GPUS_MAX + 1)
    if len(found) > GPUS_MAX:
        raise ValueError(f"at most {GPUS_MAX} GPUs")
    return tuple(found)


class SimulatedGpus:
    """GPUs of the given models, with a load that follows from seed, GPU and second.

    kept_in: folder in which MIG instances outlive this process, as real ones do, and in which a
    file `simulated-faults.json` says which GPUs have failed by now, with an XID each:
    `{"GPU-…": 119}`. One with 79 does not answer any more, as one that fell off the bus.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        clock: Clock,
        holders: Holders,
        seed: str = "offpeak",
        kept_in: Path | None = None,
    ) -> None:
        self._clock = clock
        self._holders = holders
        self._seed = seed
        self._gpus = {gpu.uuid: gpu for gpu in self._make(models)}
        modes = {uuid: name.partition("@") for uuid, name in zip(self._gpus, models, strict=True)}
        self._models = {uuid: model for uuid, (model, _, _) in modes.items()}
        self._mig = SimulatedMig(
            {uuid: model for uuid, (model, _, mode) in modes.items() if mode},
            in_use=lambda: {uuid for uuid, pids in holders().items() if pids},
            kept_in=kept_in and kept_in / "simulated-mig.json",
        )
        self._told_in = kept_in and kept_in / FAULTS
        self._told: dict[str, int] = {}
        self._taken: dict[str, tuple[int, int]] = {}
        self._faults: dict[str | None, GpuFault] = {}
        self._xids: deque[Xid] = deque()
        self._lock = threading.Lock()

    def inventory(self, made: Collection[str] = ()) -> tuple[Gpu, ...]:
        if None in self._faults:
            raise self._faults[None]
        found: list[Gpu] = []
        for uuid, gpu in self._gpus.items():
            others = [each for each in self._mig.instances(uuid) if each.uuid not in made]
            if uuid not in self._faults:
                found += [_instance(gpu, each) for each in others] or [gpu]
        return tuple(found)

    def modes(self) -> tuple[CardMode, ...]:
        if None in self._faults:
            raise self._faults[None]
        return tuple(
            CardMode(
                uuid,
                gpu.model,
                "on" if gpu.mig_enabled else "off" if profiles_of(self._models[uuid]) else "none",
                len(self._mig.instances(uuid)),
                allowed=True,
            )
            for uuid, gpu in self._gpus.items()
        )

    def instances(self, card_uuid: str) -> tuple[Instance, ...]:
        self._check(card_uuid)
        return self._mig.instances(card_uuid)

    def make_instance(self, card_uuid: str, profile: str, first: int, last: int) -> Instance:
        self._check(card_uuid)
        return self._mig.make(card_uuid, profile, first, last)

    def remove_instance(self, instance: Instance) -> None:
        self._check(instance.card_uuid)
        self._mig.remove(instance)

    def _check(self, uuid: str) -> None:
        fault = self._faults.get(None) or self._faults.get(uuid)
        if fault is not None:
            raise fault
        if uuid not in self._gpus:
            raise GpuFault("gpu-lost", "Not Found", uuid)

    def read(self, uuid: str, *, since_us: int) -> Reading:
        instance = self._mig.device(uuid)
        self._check(uuid if instance is None else instance.card_uuid)
        pids = sorted(set(self._holders().get(uuid, ())))
        if instance is not None:
            memory_mib = int(instance.profile.partition(".")[2].partition("gb")[0]) * 1024
            each_mib = memory_mib * 6 // 10 // max(1, len(pids))
            return Reading(tuple(Resident(pid, each_mib) for pid in pids), None)
        until_us = self._clock.wall_us() // 1_000_000 * 1_000_000
        fresh = pids if until_us > since_us else []
        share = self.percent(uuid, until_us // 1_000_000 - 1)
        memory_mib = self._gpus[uuid].memory_mib
        return Reading(
            residents=tuple(Resident(p, memory_mib * 6 // 10 // len(pids)) for p in pids),
            utilisation=tuple(Utilisation(p, until_us, share // len(pids)) for p in fresh),
        )

    def memory_used(self, uuid: str) -> int:
        reading = self.read(uuid, since_us=self._clock.wall_us())
        return sum(each.memory_mib or 0 for each in reading.residents)

    def busy_by(self, uuid: str) -> BusyBy:
        return "processes" if self._mig.device(uuid) is None else ""

    def energy(self, uuid: str) -> Energy | None:
        """Return a counter that begins with this object: an idle card takes a tenth of its most."""
        instance = self._mig.device(uuid)
        card = uuid if instance is None else instance.card_uuid
        self._check(card)
        now_us, holders = self._clock.wall_us(), self._holders()
        on = {card, *(each.uuid for each in self._mig.instances(card))}
        in_use = any(pids for device, pids in holders.items() if device in on)
        load = self.percent(card, now_us // 1_000_000) if in_use else 0
        watts = MODELS[self._models[card]].watts * (10 + load * 9 // 10)
        since_us, counted = self._taken.get(card, (now_us, 0))
        counted += max(0, now_us - since_us) * watts
        self._taken[card] = now_us, counted
        slices = 1 if instance is None else int(instance.profile.partition("g")[0])
        return Energy(card, counted // 100_000, slices, 1 if instance is None else COMPUTE)

    def wear(self, uuid: str) -> Wear:
        self.read(uuid, since_us=self._clock.wall_us())
        return Wear()

    def link(self, uuid: str) -> Link | None:
        self._check(uuid)
        return Link(lanes=16, generation=5)

    def xids(self) -> Sequence[Xid]:
        self._hear()
        with self._lock:
            found = tuple(self._xids)
            self._xids.clear()
        return found

    def close(self) -> None:
        """Nothing is held."""

    def percent(self, uuid: str, second: int) -> int:
        """Return the load of a GPU in use, in percent, in the second that begins at `second`.

        It wanders between 55 and 99 and keeps each level for half a minute, as training does.
        """
        level = self._draw("level", uuid, second // 30) % 40
        return 55 + level + self._draw("noise", uuid, second) % 5

    def fail(self, uuid: str | None, *, detail: str = "GPU is lost") -> None:
        """Make one GPU, or the whole driver (None), stop answering."""
        kind: FaultKind = "driver-mismatch" if uuid is None else "gpu-lost"
        self._faults[uuid] = GpuFault(kind, detail, uuid)

    def heal(self, uuid: str | None) -> None:
        """Make it answer again."""
        self._faults.pop(uuid, None)

    def _hear(self) -> None:
        """Let fail what the file says has failed, and heal what it does not name any more."""
        said: dict[str, int] = {}
        if self._told_in is not None:
            with suppress(OSError, ValueError, AttributeError):
                told = json.loads(self._told_in.read_text()).items()
                said = {uuid: xid for uuid, xid in told if uuid in self._gpus and type(xid) is int}
        for uuid in self._told.keys() - said.keys():
            self.heal(uuid)
        for uuid in said.keys() - self._told.keys():
            if said[uuid] == OFF_THE_BUS:
                self.fail(uuid)
            else:
                self.announce(uuid, said[uuid])
        self._told = said

    def announce(self, uuid: str, number: int) -> None:
        """Announce an XID error."""
        with self._lock:
            self._xids.append(Xid(uuid, number))

    def _draw(self, *parts: object) -> int:
        text = "/".join(map(str, (self._seed, *parts)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])

    def _make(self, models: Sequence[str]) -> list[Gpu]:
        made = []
        for index, name in enumerate(models):
            of, _, mode = name.partition("@")
            model = MODELS[of]
            digest = hashlib.sha256(f"{self._seed}/{index}/{name}".encode()).digest()
            together = model.nvlink and models.count(name) > 1 and not mode
            made.append(
                Gpu(
                    uuid=f"GPU-{UUID(bytes=digest[:16])}",
                    model=model.name,
                    memory_mib=model.memory_mib,
                    compute_capability=model.compute_capability,
                    driver=DRIVER,
                    nvlink_group=f"nvlink-{name.lower()}" if together else None,
                    mig_enabled=bool(mode),
                    mig_profiles=(),
                )
            )
        return made


def _instance(card: Gpu, instance: Instance) -> Gpu:
    assert instance.uuid is not None
    memory_mib = int(instance.profile.partition(".")[2].partition("gb")[0]) * 1024
    return replace(
        card,
        uuid=instance.uuid,
        memory_mib=memory_mib,
        mig_profiles=(instance.profile.removesuffix("+me"),),
        card_uuid=card.uuid,
    )
