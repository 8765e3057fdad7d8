"""An owner who missed a promise credits a share of what its GPUs were charged, once."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import commands
from ledger.commands.sla import credit_missed_sla
from ledger.domain.account_ids import earnings_account
from ledger.domain.accounts import Account, EntryRecordedOtherwise
from ledger.domain.events import SlaCredited
from ledger.domain.holds import HoldUnknown
from ledger.domain.ids import EntryId, HoldId, LeaseId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.sla_credits import SlaCreditUnreadable, SlaMiss
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from tests.conftest import NOON, SOMEBODY
from tests.ledger.wallets import ACCOUNT, PLATFORM, open_wallet

OWNER = TenantId(UUID(int=7))
HOLD, LEASE = HoldId(UUID(int=8)), LeaseId(UUID(int=9))


def miss(credit_ppm: int = 100_000, *, gpus: int = 1, of_gpus: int = 1) -> SlaMiss:
    return SlaMiss(
        hold_id=HOLD,
        lease_id=LEASE,
        owner_id=OWNER,
        gpus=gpus,
        of_gpus=of_gpus,
        credit_ppm=credit_ppm,
        reason="started 300 s in, available 3600 of 7200 s",
    )


def charged(nanos: int = 4 * NANOS_PER_UNIT) -> MemoryStore:
    """Return books in which a lease was charged so much and is paid."""
    store = MemoryStore()
    open_wallet(store)
    commands.add_funds(
        store,
        account_id=ACCOUNT,
        entry_id=EntryId(UUID(int=10)),
        money=Money(10 * NANOS_PER_UNIT),
        reference="test",
        platform_id=PLATFORM,
        by=SOMEBODY,
        now=NOON,
    )
    commands.place_hold(
        store,
        account_id=ACCOUNT,
        hold_id=HOLD,
        money=Money(5 * NANOS_PER_UNIT),
        purpose="bid:x",
        by=SOMEBODY,
        now=NOON,
    )
    commands.capture_usage(
        store,
        account_id=ACCOUNT,
        hold_id=HOLD,
        lease_id=LEASE,
        window=Window(NOON, NOON + timedelta(hours=1)),
        gpu_millis=3_600_000,
        price=Rate(nanos),
        fee_ppm=50_000,
        owner_millis=[(OWNER, 3_600_000)],
        platform_id=PLATFORM,
        cost_centre="",
        by=SOMEBODY,
        now=NOON,
    )
    commands.release_hold(store, account_id=ACCOUNT, hold_id=HOLD, by=SOMEBODY, now=NOON)
    return store


def credit(store: MemoryStore, what: SlaMiss) -> None:
    credit_missed_sla(store, account_id=ACCOUNT, miss=what, by=SOMEBODY, now=NOON)


def credits_in(store: MemoryStore) -> list[SlaCredited]:
    account = load(store, Account, ACCOUNT)
    assert account is not None
    return [each for each in account.entries.values() if isinstance(each, SlaCredited)]


def test_a_share_of_the_charge_goes_from_the_owner_to_the_consumer() -> None:
    store = charged()

    credit(store, miss())

    [entry] = credits_in(store)
    assert (entry.charged, entry.money) == (
        Money(4 * NANOS_PER_UNIT),
        Money(4 * NANOS_PER_UNIT // 10),
    )
    moved = {line.account_id: line.nanos for line in entry.postings}
    assert moved == {
        ACCOUNT: NANOS_PER_UNIT * 4 // 10,
        earnings_account(OWNER, "USD"): -NANOS_PER_UNIT * 4 // 10,
    }
    account = load(store, Account, ACCOUNT)
    assert account is not None
    assert account.available == Money(64 * NANOS_PER_UNIT // 10)


def test_asked_twice_it_is_credited_once() -> None:
    store = charged()

    credit(store, miss())
    credit(store, miss())

    assert len(credits_in(store)) == 1


def test_another_share_for_the_same_lease_is_refused() -> None:
    store = charged()
    credit(store, miss())

    with pytest.raises(EntryRecordedOtherwise):
        credit(store, miss(200_000))


def test_of_a_gang_each_owner_credits_its_own_part() -> None:
    store = charged()

    credit(store, miss(500_000, gpus=1, of_gpus=4))

    assert credits_in(store)[0].money == Money(NANOS_PER_UNIT // 2)


def test_what_was_not_charged_is_not_credited() -> None:
    store = charged(0)

    credit(store, miss())

    assert credits_in(store) == []


@pytest.mark.parametrize(
    "what", [miss(-1), miss(1_000_001), miss(gpus=0), miss(gpus=2)], ids=["<0", ">all", "0", "2/1"]
)
def test_shares_that_cannot_be_are_refused(what: SlaMiss) -> None:
    with pytest.raises(SlaCreditUnreadable):
        credit(charged(), what)


def test_of_a_hold_that_is_not_there_nothing_can_be_credited() -> None:
    store = MemoryStore()
    open_wallet(store)

    with pytest.raises(HoldUnknown):
        credit(store, miss())


@given(st.integers(0, 5 * NANOS_PER_UNIT), st.integers(0, 10**6), st.integers(1, 8), st.data())
def test_never_more_is_credited_than_was_charged(
    nanos: int, ppm: int, of_gpus: int, data: st.DataObject
) -> None:
    gpus = data.draw(st.integers(1, of_gpus))
    store = charged(nanos)

    credit(store, miss(ppm, gpus=gpus, of_gpus=of_gpus))

    whole = sum(each.money.nanos for each in credits_in(store))
    assert whole == nanos * gpus // of_gpus * ppm // 10**6
