"""Use at two prices: each part at its own, to the nano-unit, whatever the batching and order."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.accounts import Account, open_account
from ledger.domain.agreed_rates import RateSince, cost
from ledger.domain.events import AccountOpened, OwnerUse
from ledger.domain.holds import HoldClosed, Usage, UsageTermsChanged
from ledger.domain.ids import AccountId, HoldId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.repricing import UseChargedAlready, reprice_hold
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem
from tests.conftest import NOON

ACCOUNT, HOLD, LEASE = AccountId(UUID(int=1)), HoldId(UUID(int=2)), LeaseId(UUID(int=3))
OWNER = TenantId(UUID(int=4))
MILLI = timedelta(milliseconds=1)
WHOLE = Window(NOON, NOON + timedelta(hours=4))
BEFORE = Rate(1_730_000_001)


def account(*, funds: int = 10**15) -> Account:
    opened = AccountOpened(
        account_id=ACCOUNT,
        tenant_id=TenantId(UUID(int=5)),
        subscriber_id=None,
        kind="chargeback",
        title="Unit",
        currency="USD",
        overdraft_nanos=funds,
        at=NOON,
    )
    found: Account | None = None
    for event in open_account(None, opened):
        found = Account.evolve(found, event)
    assert found is not None
    [held] = found.place_hold(hold_id=HOLD, money=Money(10**13), purpose="lease", now=NOON)
    return Account.evolve(found, held)


def repriced(known: Account, price: Rate, since_ms: int, before: Rate = BEFORE) -> Account:
    since = NOON + since_ms * MILLI
    told = reprice_hold(known, hold_id=HOLD, before=before, price=price, since=since, now=NOON)
    for event in told:
        known = Account.evolve(known, event)
    return known


def use(start_ms: int, end_ms: int, price: Rate, millis: int | None = None) -> Usage:
    millis = end_ms - start_ms if millis is None else millis
    return Usage(
        hold_id=HOLD,
        lease_id=LEASE,
        window=Window(NOON + start_ms * MILLI, NOON + end_ms * MILLI),
        gpu_millis=millis,
        price=price,
        fee_ppm=50_000,
        owners=(OwnerUse(OWNER, millis),),
        cost_centre="",
        item=UsageItem(sku="H100"),
    )


def charged(known: Account, usage: Usage) -> tuple[Account, int]:
    events = known.capture(usage, platform_id=PLATFORM_ID, now=NOON)
    for event in events:
        assert sum(line.nanos for line in event.postings) == 0
        known = Account.evolve(known, event)
    return known, sum(event.charged.nanos for event in events)


prices = st.integers(0, 50_000_000_000).map(Rate)
moments = st.lists(st.integers(1, WHOLE.millis - 1), unique=True, min_size=1, max_size=3)


@settings(deadline=None)
@given(
    prices=st.lists(prices, min_size=3, max_size=3),
    since=moments,
    cuts=st.lists(st.integers(1, WHOLE.millis - 1), max_size=12),
    mix=st.randoms(use_true_random=False),
)
def test_each_part_is_charged_at_its_price_however_use_is_cut_and_in_whatever_order(
    prices: list[Rate], since: list[int], cuts: list[int], mix: Random
) -> None:
    known, first = account(), BEFORE
    later: list[RateSince] = []
    for at_ms, price in zip(sorted(since), prices, strict=False):
        before = later[-1].price if later else first
        known = repriced(known, price, at_ms, before)
        later.append(RateSince(NOON + at_ms * MILLI, price))
    borders = sorted({0, *since, *cuts, WHOLE.millis})
    windows = list(pairwise(borders))
    mix.shuffle(windows)

    total = 0
    for start_ms, end_ms in windows:
        holds = known.holds[HOLD].price_at(NOON + start_ms * MILLI)
        assert holds is not None
        known, nanos = charged(known, use(start_ms, end_ms, holds))
        assert nanos >= 0
        total += nanos

    assert total == cost(first, later, WHOLE, 1).nanos
    assert known.holds[HOLD].captured.nanos == total


def test_a_price_that_was_not_agreed_is_never_charged() -> None:
    known, _ = charged(account(), use(0, 1_000, BEFORE))

    with pytest.raises(UsageTermsChanged):
        charged(known, use(1_000, 2_000, Rate(BEFORE.nanos_per_gpu_hour + 1)))


def test_the_new_price_is_not_charged_before_its_time_nor_the_old_one_after_it() -> None:
    price = Rate(2_000_000_000)
    known = repriced(account(), price, 10_000)

    with pytest.raises(UsageTermsChanged):
        charged(known, use(0, 10_000, price))
    with pytest.raises(UsageTermsChanged):
        charged(known, use(10_000, 20_000, BEFORE))


def test_a_price_does_not_change_for_use_that_was_charged() -> None:
    known, _ = charged(account(), use(0, 10_000, BEFORE))

    with pytest.raises(UseChargedAlready):
        repriced(known, Rate(2), 9_999)


def test_a_price_is_agreed_once_and_goes_on_from_the_one_before() -> None:
    known = repriced(account(), Rate(7), 10_000)

    assert repriced(known, Rate(7), 10_000) == known
    with pytest.raises(UsageTermsChanged):
        repriced(known, Rate(9), 20_000, before=BEFORE)
    with pytest.raises(UsageTermsChanged):
        repriced(known, Rate(9), 5_000, before=BEFORE)


def test_a_hold_that_was_released_keeps_its_price() -> None:
    known = account()
    for event in known.release_hold(hold_id=HOLD, now=NOON):
        known = Account.evolve(known, event)

    with pytest.raises(HoldClosed):
        repriced(known, Rate(7), 10_000)
