"""What is offered of a lease is what its rules let through, by its stream and by its row alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.event import Event
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from marketplace.domain.leases.actions import ACTIONS, Action, offered, standing_of
from marketplace.domain.leases.lease import Lease, save
from marketplace.domain.leases.price_changes import PriceChanges, Wish, propose
from marketplace.domain.leases.reclaim import interrupt, reclaim
from marketplace.domain.leases.resale import keep_rest, list_rest, take_first
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    EVE,
    HOST_A,
    HOST_B,
    LEASE,
    ONE_HOUR,
    START_GRACE,
    active,
    after,
    folded,
    scheduled,
    share,
)

STARTS, ENDS = NOON + ONE_HOUR, NOON + 5 * ONE_HOUR
MINUTE = timedelta(minutes=1)


def reclaimed(*, notice: int = 3_600, at: datetime = STARTS + ONE_HOUR) -> Lease:
    lease = active()
    asked = reclaim(lease, owner_id=ADA, now=at, notice=timedelta(seconds=notice))
    return after(lease, asked)


def for_sale() -> Lease:
    lease = active()
    listed = list_rest(lease, since=None, floor=Rate(2_000_000_000), now=STARTS + ONE_HOUR)
    return after(lease, listed)


def opened() -> Lease:
    lease = for_sale()
    return after(lease, lease.tick(now=STARTS + 2 * ONE_HOUR, start_grace=START_GRACE))


def closing() -> Lease:
    lease = active()
    return after(lease, lease.close(now=STARTS + ONE_HOUR))


def closed() -> Lease:
    lease = closing()
    return after(lease, lease.tick(now=ENDS, start_grace=START_GRACE))


def starting() -> Lease:
    lease = folded(scheduled())
    return after(lease, lease.tick(now=STARTS, start_grace=START_GRACE))


def interrupted() -> Lease:
    lease, at = active(), STARTS + ONE_HOUR
    stop_at = at + timedelta(minutes=30)
    return after(lease, interrupt(lease, in_favour_of=LEASE, stop_at=stop_at, now=at))


BOTH: set[Action] = {"reclaim", "reprice"}
BY_STATE: list[tuple[Callable[[], Lease], datetime, set[Action], set[Action]]] = [
    (lambda: folded(scheduled()), NOON, {"end", "extend", "sell", "reprice"}, BOTH),
    (starting, STARTS, {"end", "extend", "sell", "reprice"}, BOTH),
    (active, STARTS, {"end", "extend", "sell", "checkpoint", "reprice"}, BOTH),
    # A quarter of an hour is the owner's, and nothing would be left after it.
    (active, ENDS - 16 * MINUTE + MINUTE / 60, {"end", "extend", "checkpoint", "reprice"}, BOTH),
    # Its right is over, though the clock has not looked yet.
    (active, ENDS, {"end", "checkpoint"}, set()),
    (for_sale, STARTS + ONE_HOUR, {"end", "keep", "checkpoint"}, {"reclaim", "take-first"}),
    (opened, STARTS + 2 * ONE_HOUR, {"end", "keep", "checkpoint"}, {"reclaim"}),
    # A reclaim can be brought forward by its notice, until that is over later than it anyway.
    (reclaimed, STARTS + ONE_HOUR, {"end", "checkpoint"}, {"reclaim"}),
    (reclaimed, STARTS + ONE_HOUR + 45 * MINUTE, {"end", "checkpoint"}, set()),
    (interrupted, STARTS + ONE_HOUR + 20 * MINUTE, {"end", "checkpoint"}, set()),
    (closing, STARTS + ONE_HOUR, {"checkpoint"}, set()),
    (closed, ENDS, set(), set()),
]


@pytest.mark.parametrize(("made", "now", "consumers", "owners"), BY_STATE)
def test_each_state_offers_what_it_allows(
    made: Callable[[], Lease], now: datetime, consumers: set[Action], owners: set[Action]
) -> None:
    standing = standing_of(made())

    assert set(offered(standing, tenant_id=EVE, now=now)) == consumers
    assert set(offered(standing, tenant_id=ADA, now=now)) == owners
    assert offered(standing, tenant_id=BOB, now=now) == (), "somebody else may do nothing"


def test_each_owner_of_a_gang_goes_by_its_own_notice() -> None:
    other = replace(share(HOST_B, BOB), notice_seconds=7_200)
    standing = standing_of(folded(scheduled(share(HOST_A, ADA), other)))
    late = ENDS - ONE_HOUR

    assert offered(standing, tenant_id=ADA, now=late) == ("reclaim", "reprice")
    assert offered(standing, tenant_id=BOB, now=late) == ("reprice",)


TRIED: dict[Action, Callable[[Lease, datetime], Sequence[Event]]] = {
    "end": lambda lease, now: lease.close(now=now),
    "extend": lambda lease, now: lease.ask_extension(ends_at=lease.ends_at + MINUTE, now=now),
    "sell": lambda lease, now: list_rest(
        lease, since=None, floor=lease.terms.price, lease_min_seconds=60, now=now
    ),
    "keep": lambda lease, now: keep_rest(lease, now=now),
    "checkpoint": lambda lease, now: save(lease, host_id=None, safe_at=now, now=now),
    "reclaim": lambda lease, now: reclaim(lease, owner_id=ADA, now=now),
    "take-first": lambda lease, now: take_first(lease, owner_id=ADA, now=now),
    "reprice": lambda lease, now: propose(
        PriceChanges(),
        lease,
        Wish(
            proposal_id=UUID(int=9),
            tenant_id=EVE,
            user_id=None,
            price=Rate(2_000_000_001),
            since=now + timedelta(minutes=5),
        ),
        floors=[],
        now=now,
    ),
}
MADE = [made for made, *_ in BY_STATE]


@given(
    number=st.integers(0, len(MADE) - 1),
    minutes=st.integers(0, 300),
    action=st.sampled_from(ACTIONS),
)
def test_what_is_offered_is_done_and_what_is_not_is_refused(
    number: int, minutes: int, action: Action
) -> None:
    lease, now = MADE[number](), STARTS + minutes * MINUTE
    by = ADA if action in ("reclaim", "take-first") else EVE

    try:
        done = bool(TRIED[action](lease, now)) or action == "checkpoint"
    except Refusal:
        done = False

    assert done == (action in offered(standing_of(lease), tenant_id=by, now=now))
