"""The synthetic week on the real engine: what must hold of the log, by code of its own."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest

from ledger.eventstore.port import Recorded
from marketplace.domain.facts.events import LeaseGranted, LeaseScheduled, RoundCleared
from tests.marketplace.support.invariants import audit
from tests.simulation.closing import check_charges, check_ends
from tests.simulation.product_week import ProductWeek

MONDAY = datetime.fromisoformat("2026-03-23T00:00:00+00:00")
"""Its weekend has the hour that clocks in Berlin jump over."""


@pytest.fixture(scope="module", params=[13])
def log(request: pytest.FixtureRequest) -> list[Recorded]:
    return ProductWeek(request.param, MONDAY).live()


def test_it_is_a_crowded_week(log: list[Recorded]) -> None:
    counted = Counter(recorded.type for recorded in log)

    for name, least in {
        "marketplace.lease-closed": 150,
        "marketplace.reclaim-requested": 10,
        "marketplace.bid-expired": 5,
        "marketplace.bid-cancelled": 1,
        "marketplace.round-cleared": 10,
        "ledger.usage-captured": 300,
        "ledger.compensation-paid": 1,
    }.items():
        assert counted[name] >= least, (name, counted[name])


def test_no_gpu_is_leased_twice_and_every_grant_keeps_its_terms(log: list[Recorded]) -> None:
    audit(log)


def test_every_lease_closes_with_a_reason_and_gives_back_what_it_held(log: list[Recorded]) -> None:
    scheduled = {e.lease_id for r in log if isinstance(e := r.event, LeaseScheduled)}

    assert check_ends(log) == scheduled


def test_the_ledger_balances_and_every_charge_is_price_times_use(log: list[Recorded]) -> None:
    check_charges(log)


def test_gangs_get_all_their_hosts_in_one_grant(log: list[Recorded]) -> None:
    gangs = [
        recorded.event
        for recorded in log
        if isinstance(recorded.event, LeaseGranted) and len(recorded.event.shares) > 1
    ]

    assert gangs
    for granted in gangs:
        assert len({share.host_id for share in granted.shares}) > 1


def test_no_round_is_decided_twice(log: list[Recorded]) -> None:
    rounds = [r.event.round_id for r in log if isinstance(r.event, RoundCleared)]

    assert len(rounds) == len(set(rounds))
