"""Alibaba's openb trace: GPUs of several models, of which pods ask for parts, or for a model.

The trace has no owners. They are made by a rule: pods that ask for exactly the same (CPU, memory,
GPUs, share, quality of service) are one application, and an application belongs to one owner, by
the hash of what it asks for and a seed. Or, to see what that rule does, by the hash of each pod.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.simulation.traces import DAY, HOUR, Floats, Ints

WHOLE = 1000
"""Thousandths of a GPU."""
SINCE_DAY = 116
"""Nearly all pods come in the last 33 of 149 days; what runs then is there from the beginning."""
OwnersBy = Literal["application", "pod"]


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A host's GPUs: their model, and how many."""

    model: str
    gpus: int


Fleet = Counter[Kind]


@dataclass(frozen=True, slots=True)
class Pods:
    """What is asked for, in order of arrival.

    gpus: whole ones on one host, or one of which `milli` thousandths are wanted. spec: the place
    in `specs` of the models that will do; an empty set: any. can_pause: best effort or burstable,
    not a service. application: pods that ask for the same have the same.
    """

    arrival: Floats
    duration: Floats
    gpus: Ints
    milli: Ints
    spec: Ints
    can_pause: NDArray[np.bool_]
    application: tuple[str, ...]
    specs: tuple[frozenset[str], ...]
    owner: Ints

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def size(self) -> Ints:
        """Return the thousandths of GPUs that each holds."""
        return self.gpus * self.milli

    def of(self, mask: NDArray[np.bool_]) -> Pods:
        """Return some of them."""
        return replace(
            self,
            arrival=self.arrival[mask],
            duration=self.duration[mask],
            gpus=self.gpus[mask],
            milli=self.milli[mask],
            spec=self.spec[mask],
            can_pause=self.can_pause[mask],
            application=tuple(np.array(self.application, dtype=object)[mask]),
            owner=self.owner[mask],
        )

    def on_whole_gpus(self) -> Pods:
        """Return the same pods, each share of a GPU become a whole one."""
        return replace(self, milli=np.full(len(self), WHOLE, dtype=np.int64))

    def of_any_model(self) -> Pods:
        """Return the same pods, none of which names models."""
        return replace(self, spec=np.zeros(len(self), dtype=np.int64))

    def owned(self, owners: int, by: OwnersBy, seed: int = 0) -> Pods:
        """Give each pod one of `owners` owners."""
        names = self.application if by == "application" else [str(at) for at in range(len(self))]
        drawn = [int(sha256(f"{seed} {name}".encode()).hexdigest(), 16) % owners for name in names]
        return replace(self, owner=np.array(drawn, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Openb:
    """Pods that ran, over `horizon` seconds; all that were asked for; and the real inventory."""

    pods: Pods
    asked: Pods
    inventory: Mapping[Kind, int]
    horizon: float


def read(root: Path) -> Openb:
    """Read the list in which a third of the pods name models (Weng et al., USENIX ATC 2023)."""
    folder = root / "openb"
    with (folder / "openb_node_list_gpu_node.csv").open() as lines:
        inventory = Counter(Kind(row["model"], int(row["gpu"])) for row in csv.DictReader(lines))
    with (folder / "openb_pod_list_gpuspec33.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["num_gpu"]) > 0]
    since = SINCE_DAY * DAY
    until = max(float(row["creation_time"]) for row in rows)
    ran = [
        (row, *_when(row, since))
        for row in rows
        if row["scheduled_time"] and float(row["deletion_time"]) > since
    ]
    ran.sort(key=lambda each: each[1])
    asked = [(row, float(row["creation_time"]), 0.0) for row in rows]
    asked.sort(key=lambda each: each[1])
    return Openb(_pods(ran), _pods(asked), inventory, until - since)


def _when(row: Mapping[str, str], since: float) -> tuple[float, float]:
    """Return when a pod came, and for how long it ran from then on; waits of the time left out."""
    came, began = float(row["creation_time"]), float(row["scheduled_time"])
    length = float(row["deletion_time"]) - began
    if came < since:
        return 0.0, float(row["deletion_time"]) - max(since, began)
    return came - since, length


def _pods(rows: Sequence[tuple[Mapping[str, str], float, float]]) -> Pods:
    specs: dict[frozenset[str], int] = {frozenset(): 0}
    spec = []
    for row, _, _ in rows:
        models = frozenset(row["gpu_spec"].split("|")) if row["gpu_spec"] else frozenset[str]()
        spec.append(specs.setdefault(models, len(specs)))
    asked = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos")
    return Pods(
        np.array([came for _, came, _ in rows]),
        np.array([max(1.0, length) for _, _, length in rows]),
        np.array([int(row["num_gpu"]) for row, _, _ in rows]),
        np.array([int(row["gpu_milli"]) for row, _, _ in rows]),
        np.array(spec, dtype=np.int64),
        np.array([row["qos"] in ("BE", "Burstable") for row, _, _ in rows]),
        tuple(" ".join(row[each] for each in asked) for row, _, _ in rows),
        tuple(specs),
        np.zeros(len(rows), dtype=np.int64),
    )


def synthetic(seed: int = 1, *, days: int = 5, per_hour: float = 9.0) -> Openb:
    """Make some days in openb's image: 44 % shares of a GPU, a third that name models, services."""
    random = np.random.default_rng(seed)
    inventory = Counter(
        {Kind("T4", 2): 14, Kind("P100", 2): 5, Kind("V100M32", 4): 3, Kind("G2", 8): 20}
    )
    specs = tuple(map(frozenset[str], ([], ["T4"], ["P100", "V100M32"], ["G2"], ["V100M32"])))
    count = int(random.poisson(per_hour * 24 * days))
    came = np.sort(random.uniform(0, days * DAY, count))
    application = random.integers(0, 40, count)
    part = np.array([WHOLE, 810, 470, 320, 230])
    milli = part[random.choice(5, 40, p=[0.56, 0.15, 0.15, 0.08, 0.06])][application]
    gpus = np.where(milli == WHOLE, np.array([1, 1, 1, 2, 8])[application % 5], 1)
    gpus = np.where((gpus == 8) & (random.random(count) < 0.8), 1, gpus)
    service = application % 3 > 0
    mean = np.where(service, 7.6, 6.2)
    length = np.clip(random.lognormal(mean, 1.5), 30, 2 * DAY)
    spec = np.where(random.random(count) < 0.33, random.integers(1, 5, count), 0)
    spec = np.where((gpus == 8) & (spec > 0), 3, spec)
    pods = Pods(
        came,
        length,
        gpus,
        milli,
        spec,
        ~service,
        tuple(str(each) for each in application),
        specs,
        np.zeros(count, dtype=np.int64),
    )
    return Openb(pods, pods, inventory, days * DAY)


def scarcity(pods: Pods, inventory: Mapping[Kind, int]) -> dict[str, float]:
    """Return, by model, how much is asked for that no other model will do for, by what there is.

    Of models in no demand a market's price is lowest: who doesn't mind takes those first.
    """
    there: Counter[str] = Counter()
    for kind, count in inventory.items():
        there[kind.model] += kind.gpus * count
    wanted = dict.fromkeys(there, 0.0)
    for spec, size in zip(pods.spec.tolist(), pods.size.tolist(), strict=True):
        models = pods.specs[spec] & there.keys()
        for model in models:
            wanted[model] += size / WHOLE / len(models)
    return {model: wanted[model] / there[model] for model in there}


def hours(pods: Pods) -> float:
    """Return the GPU-hours of pods."""
    return float((pods.size * pods.duration).sum()) / WHOLE / HOUR
