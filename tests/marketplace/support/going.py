"""A market with money whose bids follow one another, with its clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ledger.commands.money import release_hold
from ledger.domain.ids import BidId, HoldId
from ledger.domain.money import Money
from ledger.eventstore.port import load
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import next_id
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, somebody
from tests.marketplace.support.site import ACCOUNT, BID, TERMS, Site


class Going(Site):
    """A site whose bids follow one another. `at` names a bid by its place in the chain."""

    def want(self, **terms: Any) -> None:
        asked = replace(TERMS, **terms)
        bids.place_bid(self.store, terms=asked, by=somebody(), now=self.now)
        self.go()

    def at(self, number: int) -> Bid | None:
        bid_id: BidId = BID
        for _ in range(number - 1):
            bid_id = next_id(bid_id)
        return load(self.store, Bid, bid_id)

    def bid_at(self, number: int) -> Bid:
        bid = self.at(number)
        assert bid is not None, f"there is no bid {number}"
        return bid

    def lease_at(self, number: int) -> Lease:
        lease_id = self.bid_at(number).lease_id
        assert lease_id is not None, f"bid {number} has no lease"
        lease = load(self.store, Lease, lease_id)
        assert lease is not None
        return lease

    def clock(self, lease: Lease) -> None:
        leases.advance_lease(
            self.store,
            lease_id=lease.terms.lease_id,
            start_grace=timedelta(minutes=10),
            by=somebody(),
            now=self.now,
        )

    def begin(self, number: int = 1, *, commit: str = "") -> None:
        lease = self.lease_at(number)
        self.clock(lease)
        for host_id in lease.hosts:
            leases.lease_started(
                self.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                by=somebody(),
                now=self.now,
                commit=commit,
            )

    def stop(self, number: int = 1, *, exit_code: int | None = None, pays: bool = True) -> None:
        """Let the hosts say that the work is gone; then the lease is paid."""
        lease = self.lease_at(number)
        self.clock(lease)
        for host_id in lease.hosts:
            leases.lease_stopped(
                self.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                exit_code=exit_code,
                by=somebody(),
                now=self.now,
            )
        if pays:
            self.settle(number)
        self.go()
        self.go()

    def settle(self, number: int = 1) -> None:
        hold_id = HoldId(self.bid_at(number).terms.bid_id)
        release_hold(self.store, account_id=ACCOUNT, hold_id=hold_id, by=somebody(), now=self.now)

    def reclaim_at(self, number: int = 1) -> None:
        leases.reclaim_lease(
            self.store,
            lease_id=self.lease_at(number).terms.lease_id,
            owner_id=OWNER,
            by=somebody(),
            now=self.now,
        )

    def held(self) -> Money:
        return self.account.held


@pytest.fixture
def site() -> Going:
    site = Going()
    site.offer("a", gpus=2, at=1, windows=[(NOON, NOON + timedelta(days=60))])
    return site
