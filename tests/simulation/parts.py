"""A fleet of GPUs of several models, of which a pod may hold a part: what is free, and where to go.

Used alike by owners alone and in the market: of the models that will do the one least insisted on,
there the GPU, or host, with the least room that still suffices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.simulation.openb import WHOLE, Kind, Pods
from tests.simulation.traces import Ints

Bools = NDArray[np.bool_]
Held = list[tuple[int, int]]
"""GPUs by number, and how many thousandths of each."""
NOWHERE = np.int64(1 << 40)


class Parts:
    """How much of each GPU is free. Hosts and GPUs go by number."""

    def __init__(
        self, hosts: Sequence[tuple[Kind, int]], pods: Pods, price: Mapping[str, float]
    ) -> None:
        """hosts: what each is, and whose. price: by model; the order of it is what counts."""
        self.host = np.repeat(np.arange(len(hosts)), [kind.gpus for kind, _ in hosts])
        self.free = np.full(len(self.host), WHOLE, dtype=np.int64)
        self.whole = np.array([kind.gpus for kind, _ in hosts], dtype=np.int64)
        """By host: how many of its GPUs nobody holds any of."""
        order = sorted(price, key=lambda model: (price[model], model))
        rank = np.array([order.index(kind.model) for kind, _ in hosts], dtype=np.int64)
        self.by_host = rank * 100
        self.by_gpu = rank[self.host] * 100_000 if len(hosts) else self.host
        models = np.array([kind.model for kind, _ in hosts], dtype=object)
        self.fits_host: list[Bools] = [
            np.array([not spec or model in spec for model in models], dtype=np.bool_)
            for spec in pods.specs
        ]
        self.fits_gpu: list[Bools] = [fits[self.host] for fits in self.fits_host]
        owner = np.array([owner for _, owner in hosts], dtype=np.int64)
        self.owner_of_host, self.owner_of_gpu = owner, owner[self.host]

    def change(self, gpu: int, by: int) -> None:
        """Give a GPU more room, or less."""
        before = int(self.free[gpu])
        after = before + by
        assert 0 <= after <= WHOLE
        self.free[gpu] = after
        if (before == WHOLE) != (after == WHOLE):
            self.whole[self.host[gpu]] += 1 if after == WHOLE else -1

    def place(self, gpus: int, milli: int, spec: int, *, owner: int | None = None) -> Held | None:
        """Find room, on everything or on one owner's hosts only."""
        if milli < WHOLE:
            fits = self.fits_gpu[spec] & (self.free >= milli)
            if owner is not None:
                fits &= self.owner_of_gpu == owner
            if not fits.any():
                return None
            worth = self.by_gpu + self.free * 10 + self.whole[self.host]
            return [(int(np.where(fits, worth, NOWHERE).argmin()), milli)]
        fits = self.fits_host[spec] & (self.whole >= gpus)
        if owner is not None:
            fits &= self.owner_of_host == owner
        if not fits.any():
            return None
        host = int(np.where(fits, self.by_host + self.whole, NOWHERE).argmin())
        free = np.flatnonzero((self.host == host) & (self.free == WHOLE))[:gpus]
        return [(int(gpu), WHOLE) for gpu in free]

    def hold(self, held: Held) -> None:
        """Take what was found."""
        for gpu, milli in held:
            self.change(gpu, -milli)

    @property
    def held(self) -> int:
        """Return the thousandths held of all GPUs."""
        return len(self.free) * WHOLE - int(self.free.sum())


class Mix:
    """What is asked for most: by which to judge how useful is what's free."""

    def __init__(self, pods: Pods) -> None:
        wishes, counts = np.unique(
            np.stack([pods.gpus, pods.milli, pods.spec], axis=1), axis=0, return_counts=True
        )
        self.wishes: Ints = wishes
        self.share = counts / counts.sum()

    def stranded(self, parts: Parts) -> float:
        """Return the free GPUs that a pod drawn at random couldn't use, in the mean.

        The measure of Weng et al. (USENIX ATC 2023): free parts too small for it, all that is free
        on a host with too few whole ones, and all of models that won't do.
        """
        usable = 0.0
        for (gpus, milli, spec), share in zip(self.wishes.tolist(), self.share, strict=True):
            if milli < WHOLE:
                fits = parts.fits_gpu[spec] & (parts.free >= milli)
            else:
                enough = parts.fits_host[spec] & (parts.whole >= gpus)
                fits = enough[parts.host] & (parts.free == WHOLE)
            usable += float(share) * int(parts.free[fits].sum())
        return (int(parts.free.sum()) - usable) / WHOLE
