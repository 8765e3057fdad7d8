"""What is replayed of openb: the fewest GPUs that serve owners alone, and together in the market.

Both fleets are found alike: from plenty of every kind of host, as many are taken away as service
allows, kind by kind from the most GPUs to the fewest, until no single host can go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.simulation import filling
from tests.simulation.measures import LATE, OWN_RATE, SLACK, shares_within
from tests.simulation.openb import WHOLE, Fleet, Kind, Openb, OwnersBy, Pods, hours, scarcity
from tests.simulation.parts import Mix
from tests.simulation.sharing import Shared, Sharing
from tests.simulation.static import LATE_SHARE, P95_MINUTES
from tests.simulation.traces import DAY, HOUR, Floats

OWNERS = 8
WAIT_MAX = DAY
"""Nobody waits longer for a first start, in either fleet: no gang starves."""
Row = dict[str, Any]


def fewest(plenty: Fleet, inventory: Mapping[Kind, int], good: Callable[[Fleet], bool]) -> Fleet:
    """Return what is left of `plenty` when no host can be taken away without service suffering.

    Of hosts with as many GPUs, those of which the inventory has fewest are tried first.
    """
    fleet = plenty.copy()
    kinds = sorted(plenty, key=lambda kind: (-kind.gpus, inventory[kind], kind.model))
    for kind in kinds:
        low, high = 0, fleet[kind]
        while low < high:
            middle = (low + high) // 2
            if good(_with(fleet, kind, middle)):
                high = middle
            else:
                low = middle + 1
        fleet = _with(fleet, kind, high)
    again = True
    while again:
        again = False
        for kind in kinds:
            if fleet[kind] and good(_with(fleet, kind, fleet[kind] - 1)):
                fleet, again = _with(fleet, kind, fleet[kind] - 1), True
    return +fleet


def _with(fleet: Fleet, kind: Kind, count: int) -> Fleet:
    changed = fleet.copy()
    changed[kind] = count
    return changed


def right_sized(pods: Pods, trace: Openb, owners: int, price: Mapping[str, float]) -> list[Fleet]:
    """Return for each owner the fewest GPUs with which its own pods are served well enough."""
    sized = []
    for owner in range(owners):
        mine = pods.of(pods.owner == owner)
        if not len(mine):
            sized.append(Counter[Kind]())
            continue
        most = _most_at_once(mine)
        plenty = plenty_of(trace.inventory, most)

        def good(fleet: Fleet, mine: Pods = mine, owner: int = owner) -> bool:
            hosts = [(kind, owner) for kind in sorted(fleet.elements())]
            late = LATE_SHARE * len(mine)
            replay = Sharing(mine, hosts, price, trace.horizon, market=False, late_max=late)
            waits = replay.run().started - mine.arrival
            return bool(
                waits.max() <= WAIT_MAX
                and np.percentile(waits, 95) <= P95_MINUTES * 60
                and (waits > LATE).mean() <= LATE_SHARE
            )

        sized.append(fewest(plenty, trace.inventory, good))
    return sized


def plenty_of(inventory: Mapping[Kind, int], most: int) -> Fleet:
    """Return more hosts of every kind than are wanted for `most` GPUs, and single GPUs as well.

    Single ones even of models that the inventory has only eight to a host: else an owner with one
    pod that insists on such a model would have to own eight, and sharing would look too good.
    """
    plenty = Counter(
        {kind: min(have, -(-most // kind.gpus) + 1) for kind, have in inventory.items()}
    )
    for model in {kind.model for kind in inventory}:
        plenty[Kind(model, 1)] = most + 1
    return plenty


def _most_at_once(pods: Pods) -> int:
    """Return the most GPUs that pods hold at one time if none waits."""
    changes = np.concatenate([pods.arrival, pods.arrival + pods.duration])
    sizes = np.concatenate([pods.size, -pods.size])
    order = np.lexsort((sizes, changes))
    return int(-(-np.cumsum(sizes[order]).max() // WHOLE))


def shared_out(fleet: Fleet, sized: Sequence[Fleet]) -> list[tuple[Kind, int]]:
    """Give a smaller fleet's hosts to owners, each kind as their own fleets have it."""
    hosts = []
    for kind in sorted(fleet):
        weights = np.array([own[kind] for own in sized], dtype=np.float64)
        exact = weights / weights.sum() * fleet[kind]
        counts = np.floor(exact).astype(int)
        for owner in np.argsort(-(exact - counts), kind="stable")[: fleet[kind] - counts.sum()]:
            counts[owner] += 1
        hosts += [(kind, owner) for owner, count in enumerate(counts) for _ in range(count)]
    return hosts


def alone(pods: Pods, trace: Openb, sized: Sequence[Fleet], price: Mapping[str, float]) -> Shared:
    """Replay every owner on its own hosts."""
    hosts = [(kind, owner) for owner, own in enumerate(sized) for kind in sorted(own.elements())]
    return Sharing(pods, hosts, price, trace.horizon, market=False, mix=Mix(pods)).run()


def pooled(
    pods: Pods, trace: Openb, hosts: Sequence[tuple[Kind, int]], price: Mapping[str, float]
) -> Shared:
    """Replay one pool without a market: first come, first served, and nobody is sent away."""
    nobodys = replace(pods, owner=np.zeros(len(pods), dtype=np.int64))
    everything = [(kind, 0) for kind, _ in hosts]
    return Sharing(nobodys, everything, price, trace.horizon, market=False, mix=Mix(pods)).run()


def compare(
    trace: Openb, owners: int, by: OwnersBy, *, whole: bool = False, choosy: bool = True
) -> Row:
    """Size the owners' fleets, then take hosts away from the market while service is equal.

    whole: a pod that asks for a part of a GPU gets a whole one. choosy: pods name models.
    """
    asked = trace.pods.owned(owners, by)
    asked = asked if choosy else asked.of_any_model()
    pods = asked.on_whole_gpus() if whole else asked
    price = scarcity(asked, trace.inventory)
    sized = right_sized(pods, trace, owners, price)
    base = alone(pods, trace, sized, price)
    served = figures(base, asked, trace.horizon)

    def replayed(fleet: Fleet, mix: Mix | None = None, late_max: float = np.inf) -> Shared:
        hosts = shared_out(fleet, sized)
        return Sharing(
            pods, hosts, price, trace.horizon, market=True, mix=mix, late_max=late_max
        ).run()

    def good(fleet: Fleet) -> bool:
        out = replayed(fleet, late_max=SLACK * served["late"] * len(pods))
        return bool(
            (out.started - pods.arrival).max() <= WAIT_MAX
            and np.isfinite(out.ended).all()
            and equal_service(figures(out, asked, trace.horizon), served)
        )

    together = sum(sized, Counter[Kind]())
    least = fewest(together, trace.inventory, good)
    row = partial(figures, asked=asked, horizon=trace.horizon, baseline=base.started)
    return {
        "by": by,
        "owners": owners,
        "whole": whole,
        "choosy": choosy,
        "alone": served | {"models": _models(together)},
        "same": row(replayed(together, Mix(pods))) | {"models": _models(together)},
        "pooled": row(pooled(pods, trace, shared_out(least, sized), price)),
        "market": row(replayed(least, Mix(pods))) | {"models": _models(least)},
    }


def _models(fleet: Fleet) -> dict[str, int]:
    found: Counter[str] = Counter()
    for kind, count in fleet.items():
        found[kind.model] += kind.gpus * count
    return dict(sorted(found.items()))


def equal_service(row: Row, baseline: Row) -> bool:
    """Tell if p95 and the share over 15 minutes are within a tenth, for waits and time stood."""
    return all(
        row[key] <= SLACK * baseline[key] for key in ("wait_p95", "late", "stood_p95", "stood_late")
    )


def figures(out: Shared, asked: Pods, horizon: float, *, baseline: Floats | None = None) -> Row:
    """Measure a replay. asked: the pods with the parts of GPUs that they asked for."""
    pods = out.pods
    counted = (pods.arrival >= DAY) & (pods.arrival < horizon - DAY)
    wait = out.started - pods.arrival
    first, stood = wait[counted], out.stood[counted]
    service = out.stood[counted & ~pods.can_pause]
    span = horizon - 2 * DAY
    owned = out.gpus * span
    useful = _wanted(out, asked, horizon)
    within_quota = counted & out.within_quota
    return {
        "gpus": out.gpus,
        "u_alloc": out.held / owned,
        "u_asked": useful / owned,
        "lost_hours": out.lost / HOUR,
        "wait_p95": float(np.percentile(first, 95)) / 60,
        "late": float((first > LATE).mean()),
        "stood_p95": float(np.percentile(stood, 95)) / 60,
        "stood_late": float((stood > LATE).mean()),
        "service_stood_p95": float(np.percentile(service, 95)) / 60,
        "gang_max": float(wait[counted & (pods.gpus == pods.gpus.max())].max()) / 60,
        "stranded": float(np.mean(out.stranded)) / out.gpus if out.stranded else None,
        "cost": (owned * OWN_RATE + out.lost * OWN_RATE) / HOUR,
        "interrupted": {
            why: (len(after), *shares_within(after))
            for why, after in sorted(out.resumed_after.items())
        },
        "harm": None
        if baseline is None
        else float(
            np.percentile(wait[within_quota], 95)
            - np.percentile((baseline - pods.arrival)[within_quota], 95)
        )
        / 60,
    }


def _wanted(out: Shared, asked: Pods, horizon: float) -> float:
    """Return the GPU-seconds asked for by what ran: of a whole GPU given for a part, the part."""
    return out.held * hours(asked) / hours(out.pods) - out.lost


def run(trace: Openb) -> Row:
    """Fill the inventory, and replay the trace by several rules of who owns what."""
    return {
        "pods": len(trace.pods),
        "asked": len(trace.asked),
        "days": trace.horizon / DAY,
        "parts": float((trace.asked.milli < WHOLE).mean()),
        "named": float((trace.asked.spec > 0).mean()),
        "gpu_hours": hours(trace.pods),
        "filling": filling.compare(trace, OWNERS),
        "rows": [
            compare(trace, OWNERS, "application"),
            compare(trace, OWNERS, "application", whole=True),
            compare(trace, OWNERS, "application", choosy=False),
            compare(trace, OWNERS // 2, "application"),
            compare(trace, OWNERS, "pod"),
        ],
    }
