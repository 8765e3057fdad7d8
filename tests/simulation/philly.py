"""What is replayed of the Philly trace, and of a synthetic week in its image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tests.simulation import static
from tests.simulation.market import Market
from tests.simulation.measures import of_baseline, of_market, of_owners
from tests.simulation.nodes import nodes_needed
from tests.simulation.rules import Rules
from tests.simulation.traces import FILLER, Floats, Jobs, Trace, filler

HEADLINE_NODES = 88
BURST_WAIT = 900.0
CURVE_NODES = (72, 80, 88, 100, 110, 120, 150, 214)
STATIC_NODES = (88, 106, 132, 160, 190, 214, 260, 352)
FILLER_SHIFTS = ((36.0,), (22.0, 50.0), (22.0, 36.0, 50.0))
"""Days by which the trace's own small jobs are moved to make filler: one, two, three copies."""

Row = dict[str, Any]
Run = Callable[[Trace], Row]


def share_out(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Give each owner its part of `total` nodes, by the weights; none goes without."""
    exact = np.array(weights, dtype=np.float64) * total / sum(weights)
    nodes = np.maximum(1, np.floor(exact)).astype(int)
    for owner in np.argsort(-(exact - nodes))[: max(0, total - int(nodes.sum()))]:
        nodes[owner] += 1
    return tuple(int(count) for count in nodes)


def replay(
    trace: Trace,
    nodes: int,
    *,
    rules: Rules | None = None,
    more: Jobs | None = None,
    baseline: Floats | None = None,
) -> Row:
    """Replay a market of `nodes`, with filler if there is some.

    Each owner gives up the same part of the fleet that it needs alone.
    """
    jobs = trace.jobs if more is None else trace.jobs.with_more(more)
    owned = share_out(nodes, static.right_sized(trace))
    outcome = Market(jobs, owned, trace.horizon, rules).run()
    if baseline is not None and more is not None:
        of_jobs = np.zeros(len(jobs))
        of_jobs[jobs.owner != FILLER] = baseline
        baseline = of_jobs
    return asdict(of_market(outcome, trace.horizon, baseline=baseline))


def alone(trace: Trace, nodes: tuple[int, ...]) -> Row:
    """Measure every owner alone on its own nodes."""
    started = static.every_owner_alone(trace, nodes)
    return asdict(of_baseline(trace.jobs, started, sum(nodes), trace.horizon))


def headline(trace: Trace) -> Row:
    """Compare the right-sized baseline, the pool without a market, and the market."""
    sized = static.right_sized(trace)
    started = static.every_owner_alone(trace, sized)
    pool = static.pooled(trace, HEADLINE_NODES)
    owned = share_out(HEADLINE_NODES, sized)
    outcome = Market(trace.jobs, owned, trace.horizon).run()
    without = Rules(firm_for=None, moving=False)
    return {
        "owners": len(trace.nodes),
        "jobs": len(trace.jobs),
        "gpu_hours": trace.jobs.gpu_hours,
        "days": trace.horizon / 86_400,
        "sized": list(sized),
        "owned": list(owned),
        "baseline": asdict(of_baseline(trace.jobs, started, sum(sized), trace.horizon)),
        "pooled": asdict(of_baseline(trace.jobs, pool, HEADLINE_NODES, trace.horizon)),
        "no_pausing": replay(trace, HEADLINE_NODES, rules=without, baseline=started),
        "market": asdict(of_market(outcome, trace.horizon, baseline=started)),
        "each": [asdict(owner) for owner in of_owners(outcome, started, trace.horizon)],
    }


def kinder_baselines(trace: Trace) -> Row:
    """Size owners alone who look past everything that waits, or pause their own long work.

    As in the market, work pauses past its firm hour for work that has not had one.
    """
    sizes = static.right_sized(trace)
    return {
        "backfill": sum(static.right_sized(trace, depth=len(trace.jobs))),
        "pausing_by_waits": sum(_sized_with_pausing(trace, sizes, count_all=False)),
        "pausing": sum(_sized_with_pausing(trace, sizes, count_all=True)),
    }


def _sized_with_pausing(trace: Trace, sizes: Sequence[int], *, count_all: bool) -> list[int]:
    """Return the fewest nodes for each owner alone. count_all: time stood must be short too."""
    sized = []
    for owner, size in enumerate(sizes):
        mine = trace.jobs.of(trace.jobs.owner == owner)
        # Nobody's nodes: all work on them is borrowed, and so may be paused.
        mine = replace(mine, owner=np.zeros(len(mine), dtype=np.int64))

        def good(nodes: int, mine: Jobs = mine) -> bool:
            outcome = Market(mine, (0, nodes), trace.horizon).run()
            waits = [outcome.started - mine.arrival, *([outcome.stood] if count_all else [])]
            return all(static.served_well(each) for each in waits)

        low, high = nodes_needed(int(mine.gpus.max())), size + 4
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if good(middle) else (middle + 1, high)
        sized.append(low)
    return sized


def with_filler(trace: Trace) -> Row:
    """Add work that can wait to the market of the headline."""
    started = static.every_owner_alone(trace, static.right_sized(trace))
    rows = []
    for shifts in FILLER_SHIFTS:
        more = filler(trace, shifts)
        demand = more.gpu_hours / (HEADLINE_NODES * 8 * trace.horizon / 3600)
        row = replay(trace, HEADLINE_NODES, more=more, baseline=started)
        rows.append(row | {"copies": len(shifts), "demand": demand})
    return {"rows": rows}


def market_curve(trace: Trace) -> Row:
    """Replay the market on fleets of other sizes."""
    started = static.every_owner_alone(trace, static.right_sized(trace))
    return {"rows": [replay(trace, nodes, baseline=started) for nodes in CURVE_NODES]}


def static_curve(trace: Trace) -> Row:
    """Put every owner alone on fleets of other sizes, shared out as the right-sized ones."""
    sized = static.right_sized(trace)
    return {"rows": [alone(trace, share_out(nodes, sized)) for nodes in STATIC_NODES]}


def burst_curve(trace: Trace) -> Row:
    """Let what waits a quarter of an hour go to a cloud, and come home when there is room."""
    rules = Rules(burst_wait=BURST_WAIT)
    return {"rows": [replay(trace, nodes, rules=rules) for nodes in (56, 64, 72, 80, 88)]}


def departures(trace: Trace) -> Row:
    """Let nodes leave, three of five announced, one of five for a quarter of an hour only."""
    rows = []
    for nodes, wait in ((88, None), (88, BURST_WAIT), (106, None)):
        for rate in (0.1, 0.25, 0.5):
            rules = Rules(departures_per_node_day=rate, burst_wait=wait)
            row = replay(trace, nodes, rules=rules)
            rows.append(row | {"rate": rate, "burst": wait is not None})
    return {"rows": rows}


def what_each_rule_does(trace: Trace) -> Row:
    """Take one rule away at a time, on the fleet of the headline."""
    whole = Rules()
    variants = {
        "all rules": whole,
        "no pausing after the firm hours": replace(whole, firm_for=None),
        "no moving together": replace(whole, moving=False),
        "no reservation for gangs": replace(whole, gang_patience=1e8),
        "neither pausing, moving nor reservation": replace(
            whole, firm_for=None, moving=False, gang_patience=1e8
        ),
    }
    return {
        "rows": [
            replay(trace, HEADLINE_NODES, rules=rules) | {"name": name}
            for name, rules in variants.items()
        ]
    }


RUNS: dict[str, Run] = {
    "headline": headline,
    "kinder": kinder_baselines,
    "filler": with_filler,
    "market-curve": market_curve,
    "static-curve": static_curve,
    "burst-curve": burst_curve,
    "departures": departures,
    "rules": what_each_rule_does,
}
