"""A missed promise and a dispute about the same use never give back more than was charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.commands.disputes import decide_dispute, open_dispute_about
from ledger.commands.sla import credit_missed_sla
from ledger.domain import account_ids
from ledger.domain.accounts import Account
from ledger.domain.carrying import carry
from ledger.domain.dispute_events import DisputeOpened, UseCredited
from ledger.domain.disputes import Charge, Dispute, DisputeOver, GivenBackBefore, dispute_of
from ledger.domain.events import SlaCredited, UsageCaptured
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.journal import usage_entry
from ledger.domain.money import Money, Rate
from ledger.domain.sla_credits import SlaMiss
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load, stream_name
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

HOUR_MS = 3_600_000
OWNERS = {
    account_ids.earnings_account(owner, "USD"): owner for owner in (book.OWNER, book.OTHER_OWNER)
}
MINE, OTHERS = OWNERS
FEES = account_ids.fee_account(book.PLATFORM, "USD")
FINANCE = UserId(book.OTHER_OWNER)


def charged(hours: int = 1, *, price: Rate = book.PRICE, fee_ppm: int = 100_000) -> MemoryStore:
    """Return books in which two owners' GPUs were charged for so many hours: 2 GPU-hours each."""
    store = MemoryStore()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, book.usd(1_000))
    book.hold(store, book.usd(500))
    owners = ((book.OWNER, HOUR_MS), (book.OTHER_OWNER, HOUR_MS))
    for hour in range(hours):
        book.capture(
            store, book.hours(hour), 2 * HOUR_MS, owners=owners, price=price, fee_ppm=fee_ppm
        )
    return store


def miss(store: MemoryStore, ppm: int, *, owner: TenantId = book.OWNER) -> None:
    """Credit what one owner, whose GPU is one of two, promised and missed."""
    what = SlaMiss(
        hold_id=book.HOLD,
        lease_id=book.LEASE,
        owner_id=owner,
        gpus=1,
        of_gpus=2,
        credit_ppm=ppm,
        reason="available 3600 of 7200 s",
    )
    credit_missed_sla(store, account_id=book.FUNDS, miss=what, by=SOMEBODY, now=NOON)


def contest(store: MemoryStore, hour: int = 0, *, used: int = 0) -> EntryId:
    entry_id = usage_entry(book.LEASE, book.hours(hour))
    charge = book.account(store).entries[entry_id]
    assert isinstance(charge, UsageCaptured)
    got = [(line.account_id, line.nanos) for line in charge.postings if line.nanos > 0]
    terms = DisputeOpened(
        dispute_id=dispute_of(entry_id),
        entry_id=entry_id,
        account_id=book.FUNDS,
        tenant_id=book.CONSUMER,
        lease_id=book.LEASE,
        window=charge.window,
        charged_millis=charge.gpu_millis,
        used_millis=used,
        money=Money(0),
        contested=(),
        reason="it stood still",
        opened_by=None,
        decide_by=NOON,
        at=NOON,
    )
    parts = tuple((account_id, OWNERS.get(account_id), nanos) for account_id, nanos in got)
    open_dispute_about(store, Charge(terms, charge.charged, parts), by=SOMEBODY, now=NOON)
    return entry_id


def decide(store: MemoryStore, entry_id: EntryId, given_back: Money | None = None) -> None:
    decide_dispute(
        store,
        dispute_of(entry_id),
        "in-part" if given_back else "upheld",
        reason="the meter",
        user_id=FINANCE,
        given_back=given_back,
        by=SOMEBODY,
        now=NOON,
    )


def went_back(store: MemoryStore) -> dict[AccountId, int]:
    """Return what each account gave back, in nano-units."""
    found: dict[AccountId, int] = dict.fromkeys((MINE, OTHERS, FEES), 0)
    for entry in book.account(store).entries.values():
        if isinstance(entry, SlaCredited | UseCredited):
            for line in entry.postings:
                if line.account_id in found:
                    found[line.account_id] -= line.nanos
    return found


def dispute(store: MemoryStore, entry_id: EntryId) -> Dispute:
    found = load(store, Dispute, dispute_of(entry_id))
    assert found is not None
    return found


def test_what_an_owner_credited_whole_goes_back_no_second_time() -> None:
    store = charged(price=Rate(10**9))  # 2 dollars: 0.20 of fee, 0.90 for each owner
    miss(store, 1_000_000)  # 1.00: the half of one owner, with the fee in it

    decide(store, entry_id := contest(store))

    assert went_back(store) == {MINE: 10**9, OTHERS: 9 * 10**8, FEES: 10**8}
    assert dispute(store, entry_id).given_back == Money(10**9)
    assert book.account(store).total == book.usd(1_000)


def test_after_a_tenth_nine_tenths_are_left_of_an_owners_part() -> None:
    store = charged(price=Rate(10**9), fee_ppm=0)
    miss(store, 100_000)

    decide(store, contest(store))

    assert went_back(store) == {MINE: 10**9, OTHERS: 10**9, FEES: 0}


def test_a_part_that_is_left_goes_back_whole() -> None:
    store = charged(price=Rate(10**9), fee_ppm=0)
    miss(store, 100_000)

    decide(store, contest(store, used=HOUR_MS))  # half of it: each owner answers for 0.50

    assert went_back(store) == {MINE: 6 * 10**8, OTHERS: 5 * 10**8, FEES: 0}


def test_a_promise_credits_a_share_of_what_disputes_left() -> None:
    store = charged(2, price=Rate(10**9), fee_ppm=0)  # 4 dollars
    decide(store, contest(store))

    miss(store, 100_000)
    miss(store, 100_000)

    [credit] = [e for e in book.account(store).entries.values() if isinstance(e, SlaCredited)]
    assert (credit.charged, credit.money) == (Money(10**9), Money(10**8))
    assert credit.reason == "available 3600 of 7200 s; of what disputes left"


def test_of_what_went_back_whole_a_promise_credits_nothing() -> None:
    store = charged()
    decide(store, contest(store))

    miss(store, 1_000_000)

    assert book.account(store).total == book.usd(1_000)
    assert not [e for e in book.account(store).entries.values() if isinstance(e, SlaCredited)]


def test_more_than_is_left_is_refused_as_a_part_and_says_how_much_is() -> None:
    store = charged(price=Rate(10**9), fee_ppm=0)
    miss(store, 500_000)
    entry_id = contest(store)
    head = store.head()

    with pytest.raises(GivenBackBefore) as refused:
        decide(store, entry_id, Money(16 * 10**8))
    assert store.head() == head
    assert str(refused.value.details["left"]) == "1.50 USD"

    decide(store, entry_id, Money(3 * 10**8))  # of 0.50 and 1.00 that are left
    decide(store, entry_id, Money(3 * 10**8))
    assert went_back(store) == {MINE: 6 * 10**8, OTHERS: 2 * 10**8, FEES: 0}


def test_where_nothing_is_left_a_dispute_is_upheld_for_nothing() -> None:
    store = charged()
    miss(store, 1_000_000)
    miss(store, 1_000_000, owner=book.OTHER_OWNER)
    entry_id = contest(store)

    decide(store, entry_id)
    decide(store, entry_id)

    assert dispute(store, entry_id).given_back == Money(0)
    assert book.account(store).total == book.usd(1_000)
    assert book.account(store, MINE).held == Money(0)
    with pytest.raises(DisputeOver):
        decide(store, entry_id, Money(1))


def test_an_account_that_was_carried_forward_knows_what_went_back() -> None:
    store = charged(2, price=Rate(10**9), fee_ppm=0)
    decide(store, contest(store))
    miss(store, 100_000)
    account, stream = book.account(store), stream_name(Account, book.FUNDS)
    events = list(store.read_stream(stream))
    carried = carry(account, up_to_version=len(events), event_id=events[-1].id, now=NOON)

    def find(name: UUID) -> list[Any]:
        found = store.find_named(stream, name, up_to_version=len(events))
        return [each.event for each in found]

    again = Account.reopened(carried, find)

    assert again.holds[book.HOLD] == account.holds[book.HOLD]
    assert again.holds[book.HOLD].given_back.left_of(Money(4 * 10**9)) == Money(19 * 10**8)


STEPS = st.lists(
    st.tuples(st.sampled_from(["miss", "contest"]), st.integers(0, 2), st.integers(1, 10**6)),
    max_size=8,
)


@given(STEPS, st.integers(1, 10**10), st.integers(0, 500_000))
def test_in_any_order_no_more_goes_back_than_was_charged(
    steps: Sequence[Any], nanos: int, fee_ppm: int
) -> None:
    store = charged(3, price=Rate(nanos), fee_ppm=fee_ppm)
    done = set()
    for what, number, ppm in steps:
        key = (what, number % 2 if what == "miss" else number)
        if key in done:
            continue
        done.add(key)
        if what == "miss":
            miss(store, ppm, owner=(book.OWNER, book.OTHER_OWNER)[number % 2])
        elif nanos * 2 * (10**6 - ppm) // 10**6:
            decide(store, contest(store, number, used=2 * HOUR_MS * ppm // (10**6 + 1)))

    account = book.account(store)
    hold = account.holds[book.HOLD]
    back = went_back(store)
    assert sum(back.values()) == account.total.nanos - (10**12 - hold.captured.nanos)
    assert 0 <= sum(back.values()) <= hold.captured.nanos
