"""A lease of one's own GPUs from bid to release: metered, and charged nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ledger.commands.money import capture_usage, release_hold
from ledger.domain.accounts import Account
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.eventstore.port import load
from marketplace.commands import bids, leases
from marketplace.domain.facts import close_reasons
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, somebody
from tests.marketplace.support.site import ACCOUNT, HOUR, TERMS, Site


def test_own_use_is_metered_and_costs_nothing() -> None:
    site = Site()
    site.offer("a", gpus=2, at=2)
    own = replace(TERMS, tenant_id=OWNER, limit=replace(TERMS.limit, nanos_per_gpu_hour=1))
    bids.place_bid(site.store, terms=own, by=somebody(), now=site.now)
    site.go()
    site.start()
    held = site.account.held

    capture_usage(
        site.store,
        account_id=ACCOUNT,
        hold_id=site.lease.terms.hold_id,
        lease_id=site.lease_of_bid(),
        window=Window(NOON, NOON + HOUR),
        gpu_millis=2 * 3_600_000,
        price=site.lease.terms.price,
        fee_ppm=50_000,
        owner_millis=[(OWNER, 2 * 3_600_000)],
        platform_id=PLATFORM_ID,
        cost_centre="",
        by=somebody(),
        now=NOON + HOUR,
    )
    release_hold(
        site.store,
        account_id=ACCOUNT,
        hold_id=site.lease.terms.hold_id,
        by=somebody(),
        now=NOON + 4 * HOUR,
    )

    account = load(site.store, Account, ACCOUNT)
    assert account is not None
    assert held == Money(0)
    assert (account.total, account.held) == (Money(100 * NANOS_PER_UNIT), Money(0))


def test_an_owner_that_reclaims_from_itself_owes_nothing() -> None:
    site = Site()
    site.offer("a", gpus=2, at=2)
    bids.place_bid(site.store, terms=replace(TERMS, tenant_id=OWNER), by=somebody(), now=site.now)
    site.go()
    site.start()
    site.wait(hours=1)

    leases.reclaim_lease(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )
    site.wait(minutes=10)
    site.tick()
    site.wait(minutes=1)
    site.tick()
    site.go()

    assert site.lease.ending_reason == close_reasons.RECLAIMED
    assert site.lease.over
    assert site.account.total == Money(100 * NANOS_PER_UNIT)
    assert site.lease.starts_at < site.now - timedelta(hours=1)
