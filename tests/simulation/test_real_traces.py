"""The headline on two weeks of the real trace, by whoever has it: `make soak` runs this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import filling, openb, openb_runs, static
from tests.simulation.market import Market
from tests.simulation.measures import of_baseline, of_market
from tests.simulation.philly import share_out
from tests.simulation.product.runs import compare
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


def test_openb_is_what_it_is_said_to_be_and_sharing_leaves_less_of_it_unmet() -> None:
    trace = openb.read(ROOT or Path())

    assert sum(trace.inventory.values()) == 1_213
    assert sum(kind.gpus * count for kind, count in trace.inventory.items()) == 6_212
    assert len(trace.asked) == 7_064
    rows = {(row["slicing"], row["alone"]): row for row in filling.compare(trace, 8)}
    assert rows["shares", False]["refused"] < rows["shares", True]["refused"]
    assert rows["shares", False]["stranded"] < rows["shares", True]["stranded"]


def test_four_owners_of_openb_need_fewer_gpus_together() -> None:
    row = openb_runs.compare(openb.read(ROOT or Path()), 4, "application")

    assert row["market"]["gpus"] < 0.8 * row["alone"]["gpus"]
    assert openb_runs.equal_service(row["market"], row["alone"])


def test_three_real_days_go_through_the_product_as_the_model_says() -> None:
    """What must hold of leases, meters and money is asserted on the way."""
    trace = philly(ROOT or Path(), "2017-10-03", "2017-10-06")
    sized = static.right_sized(philly(ROOT or Path()))

    row = compare(trace, sized, 88, say=lambda _: None)

    assert row["product"]["u_alloc"] == pytest.approx(row["model"]["u_alloc"], abs=0.03)
    assert row["product"]["late"] <= row["alone"]["late"]
