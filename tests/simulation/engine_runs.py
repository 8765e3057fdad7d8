"""A stretch of Philly through the product's engine and the model: how far are they apart?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.simulation import static
from tests.simulation.engine_replay import EngineReplay
from tests.simulation.market import Market
from tests.simulation.measures import of_baseline, of_market
from tests.simulation.philly import HEADLINE_NODES, share_out
from tests.simulation.traces import Trace, philly

SINCE, UNTIL = "2017-10-03", "2017-10-10"


def run(root: Path) -> dict[str, Any]:
    """Replay a week, on the fleets that the whole trace is sized for."""
    whole = philly(root)
    return compare(philly(root, SINCE, UNTIL), static.right_sized(whole), HEADLINE_NODES)


def compare(trace: Trace, sized: tuple[int, ...], nodes: int) -> dict[str, Any]:
    """Compare owners alone, the model of the market, and the engine, on the same jobs and nodes."""
    started = static.every_owner_alone(trace, sized)
    owned = share_out(nodes, sized)
    model = Market(trace.jobs, owned, trace.horizon).run()
    replay = EngineReplay(trace.jobs, owned, trace.horizon)
    engine = replay.run()
    return {
        "jobs": len(trace.jobs),
        "gpu_hours": trace.jobs.gpu_hours,
        "days": trace.horizon / 86_400,
        "facts": replay.position,
        "bids": replay.tries,
        "decisions": replay.decided,
        "alone": asdict(of_baseline(trace.jobs, started, sum(sized), trace.horizon)),
        "model": asdict(of_market(model, trace.horizon, baseline=started)),
        "engine": asdict(of_market(engine, trace.horizon, baseline=started)),
    }
