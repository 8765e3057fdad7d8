"""What the clock does for many: leases that cannot move hold up nobody, nor does one that fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent, load
from ledger.queries.money import StrayHold
from marketplace import loops
from marketplace.domain.leases.lease import Lease
from tests.conftest import NOON, SOMEBODY
from tests.marketplace.support.leasing import START_GRACE, scheduled

pytestmark = pytest.mark.django_db
IDS = [LeaseId(UUID(int=number)) for number in range(1, 6)]
LATER = NOON + timedelta(hours=30)


@pytest.fixture
def due(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """Five leases that are over, of which rows say so for ever, as those of stuck ones would."""
    for lease_id in IDS:
        event = replace(scheduled(), lease_id=lease_id)
        write = [NewEvent(lease_id, event)]
        store.append(f"lease-{lease_id}", write, expected=Expect.ANY, by=SOMEBODY)

    def page(
        after: Any, limit: int, *, now: datetime, start_grace: timedelta
    ) -> list[tuple[datetime, LeaseId]]:
        keys = [(NOON, lease_id) for lease_id in IDS]
        return [key for key in keys if after is None or key > after][:limit]

    monkeypatch.setattr(loops, "due_leases", page)
    return store


def over(store: MemoryStore) -> list[int]:
    """Return which leases are over."""
    found = {lease_id: load(store, Lease, lease_id) for lease_id in IDS}
    return [key.int for key, lease in found.items() if lease is not None and lease.over]


def test_a_page_of_leases_that_stay_due_starves_none_behind_it(
    due: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "BATCH", 2)
    for _ in range(3):
        loops.advance_leases(due, now=LATER, start_grace=START_GRACE)
    assert over(due) == [1, 2, 3, 4, 5]


def test_a_lease_whose_rule_fails_stops_none_beside_it(
    due: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = Lease.tick

    def tick(lease: Lease, **given: Any) -> Any:
        assert lease.terms.lease_id != IDS[1], "a bug that one lease meets"
        return healthy(lease, **given)

    monkeypatch.setattr(Lease, "tick", tick)

    assert loops.advance_leases(due, now=LATER, start_grace=START_GRACE) == 4
    assert over(due) == [1, 3, 4, 5]


def test_extensions_that_fail_stop_none_behind_them(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LeaseId] = []

    def page(after: Any, limit: int, *, now: datetime) -> list[tuple[datetime, LeaseId]]:
        keys = [(NOON, lease_id) for lease_id in IDS]
        return [key for key in keys if after is None or key > after][:limit]

    def extend(store: MemoryStore, *, lease_id: LeaseId, **given: Any) -> bool:
        asked.append(lease_id)
        assert lease_id != IDS[0], "a bug that one lease meets"
        return True

    monkeypatch.setattr(loops, "leases_ending", page)
    monkeypatch.setattr(loops, "extend_when_due", extend)
    monkeypatch.setattr(loops, "BATCH", 3)

    assert [loops.extend_leases(store, now=NOON) for _ in range(2)] == [2, 2]
    assert asked == IDS


def test_stray_holds_are_found_behind_those_of_bids_that_wait_long(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More open bids than a pass looks at hold money for weeks; behind them is a stray hold."""
    given_back: list[BidId] = []

    def stray(*, older_than: datetime, after: Any, limit: int) -> list[StrayHold]:
        keys = [lease_id for lease_id in IDS if after is None or lease_id > after[1]][:limit]
        account_id = AccountId(UUID(int=9))
        return [
            StrayHold(hold_id=HoldId(key), account_id=account_id, purpose="bid:x", placed_at=NOON)
            for key in keys
        ]

    def release(store: MemoryStore, *, bid_id: BidId, **given: Any) -> bool:
        given_back.append(bid_id)
        return True

    monkeypatch.setattr(loops, "stray_holds", stray)
    monkeypatch.setattr(loops, "bids_known", lambda keys: set(IDS[:4]) & set(keys))
    monkeypatch.setattr(loops, "release_stray_hold", release)
    monkeypatch.setattr(loops, "HOLDS_LOOKED_AT", 2)

    assert sum(loops.sweep_stray_holds(store, now=NOON) for _ in range(3)) == 1
    assert given_back == [IDS[4]]
