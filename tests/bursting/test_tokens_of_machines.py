"""The token of a rented machine's agent works while the machine does, and no longer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bursting.domain.events import InstanceId
from bursting.domain.instances import host_of
from bursting.models import BurstInstanceRow, StrayRow, WaitingBidRow
from bursting.projections import PROJECTIONS
from config.overflow import ADMIT_AGENT, agent_token_of, sweep_tokens
from ledger.domain.tokens import Token
from ledger.eventstore.port import START, load
from ledger.models import TokenRow
from ledger.projections import PROJECTIONS as LEDGER
from ledger.rows import Rows
from tests.bursting.bids_and_offers import RULES
from tests.bursting.market import Market

pytestmark = pytest.mark.django_db


def follow(market: Market, *, backwards: bool = False) -> None:
    """Let the policy of the tokens see all that happened, twice, since it may be told twice."""
    events = list(market.store.read_all(after=START, limit=10_000).events)
    for _ in range(2):
        for recorded in reversed(events) if backwards else events:
            if recorded.type in ADMIT_AGENT.on:
                ADMIT_AGENT.react(recorded, market.store)


def token(market: Market, instance_id: InstanceId) -> Token | None:
    return load(market.store, Token, agent_token_of(host_of(instance_id)))


def test_it_begins_with_the_machine_and_outlives_its_timer_by_an_hour_at_most() -> None:
    market = Market()
    instance_id = market.listed()
    follow(market)

    made = token(market, instance_id)

    assert made is not None and made.revoked_at is None
    assert made.issued.expires_at == market.instance(instance_id).ends_at + timedelta(hours=1)


@pytest.mark.parametrize("how", ["ended", "lost", "never-came-up", "not-as-planned", "bid-closed"])
def test_it_ends_with_the_machine_however_that_ends(how: str) -> None:
    market = Market()
    instance_id = market.listed() if how in ("ended", "lost") else market.spill()
    market.advance(instance_id)
    market.advance(instance_id)
    follow(market)
    assert token(market, instance_id) is not None
    match how:
        case "ended" | "bid-closed":
            market.cancel_bid()
        case "lost":
            for rented in market.cloud._rented.values():
                rented.is_ended = True
        case "never-came-up":
            market.later(seconds=RULES.boot_seconds)
        case "not-as-planned":
            market.report_gpus(instance_id, 8)
    market.tick()
    assert market.instance(instance_id).is_final

    follow(market)

    made = token(market, instance_id)
    assert made is not None and made.revoked_at is not None


def test_none_is_made_for_a_machine_that_is_over_before_anybody_looked() -> None:
    market = Market()
    instance_id = market.listed()
    market.cancel_bid()
    market.tick()

    follow(market, backwards=True)

    assert token(market, instance_id) is None


def test_a_machine_that_was_refused_has_none() -> None:
    market = Market()
    market.cloud.faults.quota = 0
    instance_id = market.spill()
    market.tick()

    follow(market)

    assert token(market, instance_id) is None


def test_a_sweep_stops_what_was_left_over_and_leaves_what_works() -> None:
    market = Market()
    instance_id = market.listed()
    follow(market)
    project(market)
    assert sweep_tokens(market.store, now=market.now) == 0
    market.cancel_bid()
    market.tick()
    project(market)
    assert TokenRow.objects.get(host_id=instance_id).revoked_at is None

    assert sweep_tokens(market.store, now=market.now) == 1

    made = token(market, instance_id)
    assert made is not None and made.revoked_at == market.now
    project(market)
    assert sweep_tokens(market.store, now=market.now) == 0


def project(market: Market) -> None:
    """Write the rows anew from all that the market's store holds."""
    for table in (BurstInstanceRow, StrayRow, WaitingBidRow):
        table.objects.all().delete()
    for projection in LEDGER:
        for made in reversed(projection.tables):
            made._base_manager.all().delete()
    rows = Rows()
    for recorded in market.store.read_all(after=START, limit=10_000).events:
        for projection in (*PROJECTIONS, *LEDGER):
            if recorded.type in projection.on:
                projection.project(recorded, rows)
    rows.flush()
