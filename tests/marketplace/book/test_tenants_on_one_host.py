"""Work of two tenants is on one host at a time only where its agent keeps the two apart."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import TenantId
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import (
    ExtensionDeclined,
    ExtensionGranted,
    LeaseGranted,
    Patience,
    RoundCleared,
)
from marketplace.domain.facts.instants import from_below
from marketplace.domain.verification.verify_round import faults
from marketplace.queries.books import book_of, explain_bid
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, named
from tests.marketplace.support.random_market import Crowd, Lane

HOUR = timedelta(hours=1)
BRIEF = [(NOON, NOON + timedelta(minutes=90))]
PATIENCE = pytest.mark.parametrize("patience", ["immediate", "patient"])
A, B = TenantId(named("tenant a")), TenantId(named("tenant b"))


def host_of(market: Market, word: str) -> str | None:
    granted = market.grant(word)
    return None if granted is None else granted.shares[0].gpu_uuids[0].split(":")[0]


def starts(market: Market, word: str) -> timedelta:
    granted = market.grant(word)
    assert granted is not None
    return granted.window.starts_at - NOON


@PATIENCE
def test_a_host_that_cannot_keep_tenants_apart_has_one_at_a_time(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=4, windows=BRIEF)
    market.agent("a", "account")
    market.bid("first", at=9, tenant=A, patience=patience)
    other = market.bid("other", at=5, tenant=B, patience=patience)
    market.bid("second", at=3, tenant=A, patience=patience)

    market.run()

    assert (host_of(market, "first"), host_of(market, "second")) == ("a", "a")
    assert market.grant("other") is None
    told = explain_bid(market.store, market=MARKET, bid_id=other, now=market.now)
    assert told is not None and told.reason == "tenants"
    assert reasons(market) == {"tenants"}


def reasons(market: Market) -> set[str]:
    return {
        each.reason
        for recorded in market.decisions()
        if isinstance(recorded.event, RoundCleared)
        for each in recorded.event.unmatched
    }


@PATIENCE
@pytest.mark.parametrize("level", ["process", "full", "container", ""])
def test_on_other_hosts_they_meet(patience: Patience, level: str) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", level, "files")
    market.bid("one", at=9, tenant=A, patience=patience)
    market.bid("two", at=5, tenant=B, patience=patience)

    market.run()

    assert host_of(market, "one") == host_of(market, "two") == "a"


@PATIENCE
def test_the_other_tenant_comes_next_or_goes_elsewhere(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.offer("b", gpus=2, at=2, windows=BRIEF)
    market.agent("a", "none")
    market.agent("b", "account")
    market.bid("one", at=9, gpus=1, tenant=A, patience=patience)
    market.run()
    market.bid("late", at="1.5", tenant=B, patience=patience)
    market.bid("dear", at=5, tenant=B, patience=patience, deadline=NOON + 1.5 * HOUR)
    market.wait(minutes=2)
    market.run()

    assert (host_of(market, "one"), host_of(market, "dear")) == ("a", "b")
    assert host_of(market, "late") == "a"
    assert starts(market, "late") >= starts(market, "one") + HOUR


@PATIENCE
def test_when_the_first_goes_early_who_waited_is_served(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", "account")
    market.bid("one", at=9, tenant=A, patience=patience)
    market.run()
    market.bid("other", at=5, tenant=B, hours=0.6, patience=patience)
    market.run()
    assert market.grant("other") is None

    market.wait(minutes=3)
    market.close("one")
    market.run()

    assert host_of(market, "other") == "a"


def test_an_owners_own_work_counts_as_another_tenants() -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", "account")
    market.bid("theirs", at=9, tenant=A)
    market.run()
    market.bid("own", at=9, tenant=OWNER)
    market.run()

    assert host_of(market, "theirs") == "a"
    assert market.grant("own") is None


def test_a_lease_is_not_extended_into_another_tenants() -> None:
    market = Market()
    market.offer("short", host="a", gpus=2, only=[0], windows=BRIEF)
    market.offer("long", host="a", gpus=2, only=[1])
    market.agent("a", "account")
    market.bid("one", at=9, tenant=A)
    market.run()
    market.bid("next", at=9, tenant=B)
    market.run()
    market.take_up()
    assert starts(market, "next") == HOUR

    market.extend("one", NOON + 1.5 * HOUR)
    market.run()
    market.extend("next", NOON + 3 * HOUR)
    market.run()

    said = [e.event for e in market.decisions()]
    (declined,) = [each for each in said if isinstance(each, ExtensionDeclined)]
    assert declined.reason == "tenants"
    assert len([each for each in said if isinstance(each, ExtensionGranted)]) == 1


def test_a_level_that_falls_ends_nothing_and_lets_nobody_in() -> None:
    market = Market()
    market.offer("a", gpus=4, windows=BRIEF)
    market.agent("a", "process")
    market.bid("one", at=9, tenant=A)
    market.bid("two", at=9, tenant=B)
    market.run()

    market.agent("a", "account")
    for tenant in (A, B):
        market.bid(f"more of {tenant}", at=9, tenant=tenant)
    market.run()

    assert host_of(market, "one") == host_of(market, "two") == "a"
    assert all(market.grant(f"more of {tenant}") is None for tenant in (A, B))
    market.agent("a", "process")
    market.run()
    assert all(host_of(market, f"more of {tenant}") == "a" for tenant in (A, B))


@given(st.randoms(use_true_random=True))
@settings(max_examples=15, deadline=None)
def test_whatever_comes_no_two_tenants_are_granted_such_a_host_together(random: Random) -> None:
    crowd, lane = Crowd(random), Lane(Book(MARKET))
    for _ in range(60):
        for event, position in crowd.acts(lane.book):
            for granted in lane.take_in(event, position, now=crowd.now):
                if isinstance(granted, LeaseGranted):
                    assert not met(lane.book, granted)


def met(book: Book, granted: LeaseGranted) -> list[Held]:
    """Return the leases of other tenants that a grant meets where nothing keeps them apart."""
    mine = book.held[granted.lease_id]
    hosts = {
        share.host_id
        for share in granted.shares
        if not book.agents.says(share.host_id).keeps_tenants_apart
    }
    return [
        held
        for held in book.held.values()
        if held.bid is not None
        and mine.bid is not None
        and held.bid.tenant_id != mine.bid.tenant_id
        and hosts & {share.host_id for share in held.granted.shares}
        and from_below(held.granted.window.starts_at) < mine.ends
        and from_below(granted.window.starts_at) < held.ends
    ]


def test_a_book_from_a_snapshot_knows_whose_leases_are_where() -> None:
    market = Market()
    market.agent("a", "account")
    market.offer("a", gpus=2, windows=BRIEF)
    market.bid("one", at=9, tenant=A)
    market.run()

    with book_of(market.store, MARKET) as book:
        again = restored(state_of(book))

        assert again.calendar.one_tenant == book.calendar.one_tenant != {}
        assert again.calendar.tenants == book.calendar.tenants != {}


def test_a_round_that_puts_two_tenants_together_is_not_appended() -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", "process")
    market.bid("one", at=9, tenant=A, patience="patient")
    market.bid("two", at=9, tenant=B, patience="patient")
    with book_of(market.store, MARKET) as book:
        before = restored(state_of(book))
    market.run()
    said = [each.event for each in market.decisions()]
    (cleared,) = [each for each in said if isinstance(each, RoundCleared)]
    grants = [each for each in said if isinstance(each, LeaseGranted)]
    assert len(grants) == 2 and faults(before, cleared, grants) == []

    said_now = before.agents.said
    said_now.update({host: said_now[host]._replace(sandbox="account") for host in said_now})

    found = faults(before, cleared, grants)
    assert [fault.lease_id for fault in found] == [grants[1].lease_id]
    assert "cannot keep it apart" in found[0].said
