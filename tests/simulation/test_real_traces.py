"""The headline on two weeks of the real trace, by whoever has it: `make soak` runs this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import static
from tests.simulation.market import Market
from tests.simulation.measures import of_baseline, of_market
from tests.simulation.philly import share_out
from tests.simulation.traces import Trace, filler, philly, traces_at

ROOT = traces_at()
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(ROOT is None, reason="OFFPEAK_TRACES names no directory of traces"),
]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return philly(ROOT or Path(), "2017-10-03", "2017-10-17")


def test_less_than_half_of_the_nodes_give_equal_service_on_two_real_weeks(trace: Trace) -> None:
    sized = static.right_sized(trace)
    started = static.every_owner_alone(trace, sized)
    alone = of_baseline(trace.jobs, started, sum(sized), trace.horizon)
    owned = share_out(round(0.45 * sum(sized)), trace.nodes)

    outcome = Market(trace.jobs, owned, trace.horizon).run()

    market = of_market(outcome, trace.horizon)
    assert market.u_alloc > 2 * alone.u_alloc
    assert market.wait_p95 <= 1.1 * alone.wait_p95
    assert market.stood_p95 <= 1.1 * alone.stood_p95
    assert market.late <= 1.1 * alone.late
    assert market.stood_late <= 1.1 * alone.stood_late


def test_filler_leaves_owners_alone_on_two_real_weeks(trace: Trace) -> None:
    owned = share_out(88, trace.nodes)
    jobs = trace.jobs.with_more(filler(trace, (3.0, 5.0, 8.0)))

    outcome = Market(jobs, owned, trace.horizon).run()

    market = of_market(outcome, trace.horizon)
    assert market.u_alloc >= 0.85
    assert market.wait_p95 <= 3.0
    assert market.gang_max <= 30.0
