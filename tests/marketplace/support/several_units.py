"""A market in which several business units have money of their own, and leases of one another."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ledger.commands.money import add_funds, open_account
from ledger.domain.account_ids import funds_account
from ledger.domain.accounts import Account
from ledger.domain.ids import AccountId, BidId, EntryId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.port import EventStore, load
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases.lease import Lease
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.site import START_GRACE, TERMS, Site

FUNDS = Money(1_000 * NANOS_PER_UNIT)


class Several(Site):
    """A market with a thousand in the wallet of each unit."""

    def __init__(self, *units: str, store: EventStore | None = None) -> None:
        super().__init__(store=store)
        for word in units:
            open_account(
                self.store,
                account_id=self.account_id(word),
                tenant_id=TenantId(named(f"tenant {word}")),
                subscriber_id=SubscriberId(named(f"unit {word}")),
                kind="prepaid",
                title=word,
                currency="USD",
                overdraft_nanos=0,
                by=somebody(),
                now=NOON,
            )
            add_funds(
                self.store,
                account_id=self.account_id(word),
                entry_id=EntryId(named(f"funds {word}")),
                money=FUNDS,
                reference=f"opening {word}",
                platform_id=PLATFORM_ID,
                by=somebody(),
                now=NOON,
            )

    def account_id(self, word: str) -> AccountId:
        """Return a unit's wallet."""
        return funds_account(SubscriberId(named(f"unit {word}")), "USD")

    def account_of(self, word: str) -> Account:
        """Return a unit's wallet as it stands."""
        account = load(self.store, Account, self.account_id(word))
        assert account is not None
        return account

    def place(self, unit: str, word: str = "", *, limit: str, hours: int, **terms: Any) -> None:
        """Place a bid for one GPU, named as its unit unless `word` names it."""
        wanted = replace(
            TERMS,
            bid_id=BidId(named(f"bid {word or unit}")),
            tenant_id=TenantId(named(f"tenant {unit}")),
            subscriber_id=SubscriberId(named(f"unit {unit}")),
            account_id=self.account_id(unit),
            duration_seconds=hours * 3_600,
            limit=rate(limit),
            **{"gpus": 1, **terms},
        )
        bids.place_bid(self.store, terms=wanted, by=somebody(), now=self.now)

    def change(self, word: str, *, limit: str | None = None, **terms: Any) -> None:
        """Amend a bid. terms: deadline, gpus."""
        bids.amend_bid(
            self.store,
            bid_id=BidId(named(f"bid {word}")),
            limit=rate(limit) if limit else None,
            by=somebody(),
            now=self.now,
            **{"deadline": None, **terms},
        )

    def withdraw(self, word: str) -> None:
        """Cancel a bid."""
        bids.cancel_bid(self.store, bid_id=BidId(named(f"bid {word}")), by=somebody(), now=self.now)

    def take_back(self, word: str, owner: TenantId = OWNER) -> None:
        """Reclaim the lease of a bid, with the least notice."""
        leases.reclaim_lease(
            self.store,
            lease_id=self.lease_id(word),
            owner_id=owner,
            by=somebody(),
            now=self.now,
        )

    def bid_of(self, word: str) -> Bid:
        """Return a bid as it stands."""
        bid = load(self.store, Bid, BidId(named(f"bid {word}")))
        assert bid is not None
        return bid

    def found_lease(self, word: str) -> Lease | None:
        """Return the lease that a bid became, or None."""
        bid = self.bid_of(word)
        return None if bid.lease_id is None else load(self.store, Lease, bid.lease_id)

    def lease_of(self, word: str) -> Lease:
        """Return the lease that a bid became."""
        lease = self.found_lease(word)
        assert lease is not None, f"{word} has no lease"
        return lease

    def begin(self, word: str) -> None:
        """Let a lease begin and its host report the start."""
        lease_id = self.lease_of(word).terms.lease_id
        leases.advance_lease(
            self.store, lease_id=lease_id, start_grace=START_GRACE, by=somebody(), now=self.now
        )
        for host_id in self.lease_of(word).hosts:
            leases.lease_started(
                self.store, lease_id=lease_id, host_id=host_id, by=somebody(), now=self.now
            )

    def later(self, hours: float) -> datetime:
        """Return the moment so many hours from now."""
        return self.now + timedelta(hours=hours)
