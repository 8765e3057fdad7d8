"""Which departures there are, on which host and after how long: drawn from a seed beforehand."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.departures.work import OF_GPU, OF_HOST, Kind

HOSTS = 3
RUN_SECONDS = (15.0, 60.0)
"""How long work runs before its host leaves. Longer work loses a smaller share."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One departure. number: counts from 0 within its run."""

    number: int
    kind: Kind
    run_seconds: float


@dataclass(frozen=True, slots=True)
class Stint:
    """Departures from one host that is up for a while: from single GPUs first, of all of it last.

    Each takes one work away, so that none counts twice.
    """

    host: int
    departures: tuple[Planned, ...]


def plan(
    *,
    count: int,
    seed: int,
    of_gpus: int = 2,
    of_host: Sequence[Kind] = OF_HOST,
    run_seconds: tuple[float, float] = RUN_SECONDS,
) -> list[Stint]:
    """Return so many departures, in stints of `of_gpus` and one of the whole host.

    The kinds of each sort come equally often, in an order that is drawn.
    """
    draw = random.Random(seed)
    gpu_kinds, host_kinds = _dealt(OF_GPU, draw), _dealt(of_host, draw)
    stints: list[Stint] = []
    number = 0
    while number < count:
        kinds = [*(next(gpu_kinds) for _ in range(of_gpus)), next(host_kinds)][: count - number]
        departures = [
            Planned(number + index, kind, draw.uniform(*run_seconds))
            for index, kind in enumerate(kinds)
        ]
        stints.append(Stint(len(stints) % HOSTS, tuple(departures)))
        number += len(kinds)
    return stints


def _dealt(kinds: Sequence[Kind], draw: random.Random) -> Iterator[Kind]:
    while True:
        yield from draw.sample(kinds, len(kinds))
