"""openb's pods on its real inventory, none ever leaving: how full it gets, and what is stranded.

That is what the trace was made for (Weng et al., USENIX ATC 2023): all it asks for together is
98 % of what there is. Parts of GPUs are given as asked, or as MIG instances of an A100, or as
whole GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from listings.domain.mig import CARDS, Placed, still_fits
from tests.simulation.openb import WHOLE, Kind, Openb, Pods, scarcity
from tests.simulation.parts import NOWHERE, Bools, Held, Mix, Parts

Slicing = Literal["shares", "mig", "whole"]
SLICINGS: tuple[Slicing, ...] = ("shares", "mig", "whole")
CARD = CARDS["A100-80GB"]
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb")
POINTS = 20
Instances = tuple[Placed, ...]


def dealt(
    inventory: Mapping[Kind, int], demand: Sequence[float], seed: int = 0
) -> list[tuple[Kind, int]]:
    """Deal the hosts to owners, each kind in the proportion of what they ask for in all."""
    random = np.random.default_rng(seed)
    wanted = np.array(demand) / sum(demand)
    hosts = []
    for kind in sorted(inventory):
        exact = wanted * inventory[kind]
        counts = np.floor(exact).astype(int)
        left = inventory[kind] - int(counts.sum())
        if left:
            chosen = random.choice(len(demand), left, replace=False, p=wanted)
            counts[chosen] += 1
        hosts += [(kind, owner) for owner, count in enumerate(counts) for _ in range(count)]
    return hosts


def filled(parts: Parts, pods: Pods, *, alone: bool) -> Bools:
    """Place pods in order of arrival; return which found a place.

    alone: only on hosts of their owner.
    """
    placed = np.zeros(len(pods), dtype=np.bool_)
    columns = (pods.gpus.tolist(), pods.milli.tolist(), pods.spec.tolist(), pods.owner.tolist())
    for pod, (gpus, milli, spec, owner) in enumerate(zip(*columns, strict=True)):
        held = parts.place(gpus, milli, spec, owner=owner if alone else None)
        if held is not None:
            parts.hold(held)
            placed[pod] = True
    return placed


class Instanced(Parts):
    """GPUs of which parts are MIG instances: they take slices, and stay where they were put."""

    def __init__(
        self, hosts: Sequence[tuple[Kind, int]], pods: Pods, price: Mapping[str, float]
    ) -> None:
        super().__init__(hosts, pods, price)
        self.on: list[Instances] = [()] * len(self.free)
        self.room = np.full((len(PROFILES), len(self.free)), True)

    def place(self, gpus: int, milli: int, spec: int, *, owner: int | None = None) -> Held | None:
        """Find room for the smallest instance that gives as much, or for whole GPUs."""
        wanted = profile_for(milli)
        if wanted is None:
            return super().place(gpus, WHOLE, spec, owner=owner)
        fits = self.fits_gpu[spec] & self.room[PROFILES.index(wanted)]
        if owner is not None:
            fits &= self.owner_of_gpu == owner
        if not fits.any():
            return None
        worth = self.by_gpu + self.free * 10 + self.whole[self.host]
        gpu = int(np.where(fits, worth, NOWHERE).argmin())
        self.on[gpu] = with_one_more(self.on[gpu], wanted)
        there = still_there(self.on[gpu])
        self.room[:, gpu] = [profile in there for profile in PROFILES]
        return [(gpu, milli)]

    def hold(self, held: Held) -> None:
        """Take what was found; a whole GPU has no room for instances."""
        super().hold(held)
        for gpu, milli in held:
            if milli == WHOLE:
                self.room[:, gpu] = False


def profile_for(milli: int) -> str | None:
    """Return the smallest profile with as much compute; None: only the whole GPU has."""
    for name in PROFILES:
        found = CARD.profile(name)
        assert found is not None
        if found.compute * WHOLE >= milli * CARD.compute:
            return name
    return None


@lru_cache(maxsize=10_000)
def still_there(on: Instances) -> frozenset[str]:
    """Return the profiles of which one more fits."""
    return frozenset(still_fits(CARD, on))


@lru_cache(maxsize=10_000)
def with_one_more(on: Instances, name: str) -> Instances:
    """Put an instance where most others still fit beside it."""
    ways = (tuple(sorted((*on, Placed(start, name)))) for start in still_fits(CARD, on)[name])
    return max(ways, key=lambda way: sum(len(s) for s in still_fits(CARD, way).values()))


def compare(trace: Openb, owners: int) -> list[dict[str, Any]]:
    """Fill the inventory, owners alone and in the market, by each way to give a part of a GPU."""
    pods = trace.asked.owned(owners, "application")
    demand = np.bincount(pods.owner, weights=pods.size, minlength=owners)
    hosts = dealt(trace.inventory, demand.tolist())
    return [
        _row(trace, pods, hosts, slicing, alone=alone)
        for slicing in SLICINGS
        for alone in (True, False)
    ]


def _row(
    trace: Openb, pods: Pods, hosts: Sequence[tuple[Kind, int]], slicing: Slicing, *, alone: bool
) -> dict[str, Any]:
    price = scarcity(pods, trace.inventory)
    made = Instanced if slicing == "mig" else Parts
    parts = made(hosts, pods, price)
    placed = filled(parts, pods.on_whole_gpus() if slicing == "whole" else pods, alone=alone)
    gpus, named = len(parts.free), pods.spec > 0
    refused = np.flatnonzero(~placed)
    until = int(refused[0]) if len(refused) else len(pods)
    return {
        "slicing": slicing,
        "alone": alone,
        "gpus": gpus,
        "asked": float(pods.size.sum()) / WHOLE / gpus,
        "held": parts.held / WHOLE / gpus,
        "useful": float(pods.size[placed].sum()) / WHOLE / gpus,
        "refused": float((~placed).mean()),
        "refused_named": float((~placed)[named].mean()),
        "untouched": float((parts.free == WHOLE).mean()),
        "stranded": Mix(pods).stranded(parts) / gpus,
        "curve": _curve(pods, placed, gpus),
        "first_refused_at": float(pods.size[:until].sum()) / WHOLE / gpus,
    }


def _curve(pods: Pods, placed: Bools, gpus: int) -> list[tuple[float, float]]:
    """Return what was met of what was asked for so far, by owned GPUs, at twenty points."""
    asked = np.cumsum(pods.size) / WHOLE / gpus
    met = np.cumsum(np.where(placed, pods.size, 0)) / WHOLE / gpus
    at = np.linspace(0, len(pods) - 1, POINTS).astype(int)
    return list(zip(asked[at].tolist(), met[at].tolist(), strict=True))
