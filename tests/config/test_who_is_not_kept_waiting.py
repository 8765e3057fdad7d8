"""A first event is shown at once, many in larger pages, and nobody's lease waits for bulk."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from config.env import Env
from config.processes.loops import Loop, rest_after
from config.wiring import GIVE_WAY, loop_groups, loops, projections
from ledger.eventstore.port import EventStore
from marketplace.models import BidRow, LeaseRow, LeaseShareRow

ENV = Env()


def nothing(store: EventStore, now: datetime) -> int:
    return 0


LOOP = Loop("rows", 5.0, nothing, on_events=True, gather_seconds=0.01, rest_seconds_max=0.1)


@pytest.mark.parametrize(
    ("did", "took", "rest"),
    [
        pytest.param(0, 0.001, 0.009, id="a look for nothing is not repeated at once"),
        pytest.param(0, 5.0, 0.0, id="the first event after a silence is shown at once"),
        pytest.param(1, 0.012, 0.012, id="a page is followed by as much rest as it took"),
        pytest.param(1_000, 0.3, 0.1, id="however long it took nobody waits for longer than this"),
    ],
)
def test_pages_grow_with_what_there_is_to_do(did: int, took: float, rest: float) -> None:
    assert rest_after(LOOP, did, took) == pytest.approx(rest)


def test_what_nobody_waits_for_rests_longer() -> None:
    longer = replace(LOOP, rests=3.0)

    assert rest_after(longer, 1, 0.012) == pytest.approx(0.036)
    assert rest_after(longer, 1_000, 0.3) == pytest.approx(0.1)


def test_rows_that_people_wait_for_are_written_apart_from_bulk() -> None:
    awaited = {table for each in projections() if not each.is_bulk for table in each.tables}
    bulk = {table for each in projections() if each.is_bulk for table in each.tables}
    home = {name: group for group, names in loop_groups(ENV).items() for name in names}

    assert {BidRow, LeaseRow, LeaseShareRow} <= awaited
    assert not awaited & bulk
    assert home["bulk-rows"] not in (home["projections"], home["policies"])


def test_what_leads_to_a_lease_gives_way_to_those_who_bid_and_to_nobody_else() -> None:
    known = {loop.name: loop for loop in loops(ENV)}
    home = {name: group for group, names in loop_groups(ENV).items() for name in names}
    least = min(GIVE_WAY.values())

    assert GIVE_WAY.get(home["clearing"], 0) == 0
    for name in ("policies", "projections"):
        assert GIVE_WAY[home[name]] == least
        assert rest_after(known[name], 1_000, 1.0) <= 0.1
