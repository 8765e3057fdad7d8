"""Payouts step by step: what is payable, who may approve, and what each step does to the books."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from ledger.commands import payouts as commands
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import BankFiles, Debtor, Draft, NothingToSend
from ledger.domain.payee_details import DetailsUnknown, DetailsWait
from ledger.domain.payee_settling import NothingPayable
from ledger.domain.payees import (
    ApprovedBySame,
    DetailsMissing,
    OwnPayout,
    PayoutPaidOtherwise,
    PayoutsPaused,
    PayoutStateOtherwise,
    PayoutUnknown,
    ReasonMissing,
)
from ledger.domain.payout_events import BankFileLine, BankFileWritten
from ledger.domain.settling import PayoutTerms, due, next_cut_off, payable
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger import paying
from tests.ledger.paying import CENT, IRIS, JOAN, OSCAR, earned

USD = 1_000_000_000
TRANSIT = transit_account(book.PLATFORM, "USD")
CASH = cash_account(book.PLATFORM, "USD")
DETAILS = BankDetails(name="Lab Ltd", iban="DE89370400440532013000")


def requested(store: MemoryStore, total: int = 50 * USD) -> UUID:
    made = paying.settle(store, earned(total))
    assert made is not None
    return made


def with_details(store: MemoryStore) -> UUID:
    details_id = uuid4()
    commands.propose_bank_details(
        store,
        paying.of(),
        DETAILS,
        details_id=details_id,
        wait_seconds=60,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON,
    )
    commands.confirm_bank_details(
        store,
        paying.EARNINGS,
        details_id,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON + timedelta(minutes=1),
    )
    return details_id


def send(store: MemoryStore, *payouts: UUID, details_id: UUID, file_id: UUID | None = None) -> None:
    lines = [
        BankFileLine(
            payout_id=each,
            account_id=paying.EARNINGS,
            details_id=details_id,
            end_to_end_id=f"OP-{number}",
            nanos=50 * USD,
        )
        for number, each in enumerate(payouts)
    ]
    draft = Draft(
        file_id=file_id or uuid4(),
        format="csv",
        currency="USD",
        debtor=Debtor(),
        execute_on=date(2026, 1, 6),
        lines=lines,
    )
    commands.write_bank_file(
        store,
        draft,
        render=lambda event: event.message_id.encode(),
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )


def test_what_is_payable_leaves_out_what_is_late_recent_or_disputed() -> None:
    found = payable(
        earned(100 * USD, later=10 * USD, recent=20 * USD + 1, set_aside=5 * USD),
        paid_out=30 * USD,
        held_share_ppm=100_000,
        unit=CENT,
    )
    assert (found.owed, found.held_back) == (70 * USD, 2 * USD + 1)
    assert found.nanos == 53 * USD - CENT  # a nano-unit is held back, and less than a cent stays


@pytest.mark.parametrize("total", [0, -5 * USD, CENT - 1])
def test_what_is_not_a_cent_is_carried(total: int) -> None:
    assert payable(earned(total), paid_out=0, held_share_ppm=0, unit=CENT).nanos == 0


@pytest.mark.parametrize(
    ("now", "week", "cut_off"),
    [
        (datetime(2026, 11, 30, tzinfo=UTC), "2026-W48", date(2026, 11, 30)),
        (datetime(2026, 12, 6, 23, 59, tzinfo=UTC), "2026-W48", date(2026, 11, 30)),
        (datetime(2027, 1, 4, tzinfo=UTC), "2026-W53", date(2027, 1, 4)),
        (datetime(2027, 1, 11, tzinfo=UTC), "2027-W01", date(2027, 1, 11)),
    ],
)
def test_weeks_end_on_sunday_in_utc(now: datetime, week: str, cut_off: date) -> None:
    found = due("weekly", now)
    assert found is not None and (found.period, found.cut_off) == (week, cut_off)
    assert next_cut_off("weekly", now) == cut_off + timedelta(days=7)


def test_months_end_with_the_month() -> None:
    found = due("monthly", datetime(2027, 1, 31, tzinfo=UTC))
    assert found is not None and (found.period, found.cut_off) == ("2026-12", date(2027, 1, 1))
    assert next_cut_off("monthly", datetime(2027, 1, 31, tzinfo=UTC)) == date(2027, 2, 1)
    assert due("manual", NOON) is None and next_cut_off("manual", NOON) is None


def test_a_payout_moves_earnings_to_cash_in_two_entries(store: MemoryStore) -> None:
    payout = requested(store)
    assert book.totals(store)[paying.EARNINGS] == -50 * USD
    assert book.totals(store)[TRANSIT] == 50 * USD
    paying.approve(store, payout, JOAN)
    send(store, payout, details_id=with_details(store))
    paying.paid(store, payout)

    totals = book.totals(store)
    assert (totals[TRANSIT], totals[CASH]) == (0, 50 * USD)
    assert sum(totals.values()) == 0
    assert paying.payee(store).paid_out == 50 * USD


def test_a_period_is_settled_once(store: MemoryStore) -> None:
    first = requested(store)
    head = store.head()
    assert paying.settle(store, earned(500 * USD)) == first
    assert store.head() == head


def test_what_was_paid_out_is_not_payable_again_however_late_the_tables_are(
    store: MemoryStore,
) -> None:
    requested(store)
    with pytest.raises(NothingPayable):
        paying.settle(store, earned(50 * USD), period="2026-01-06", user=JOAN)


def test_what_is_below_the_minimum_waits_unless_a_person_asks(store: MemoryStore) -> None:
    assert paying.settle(store, earned(9 * USD)) is None
    assert paying.settle(store, earned(9 * USD), user=JOAN) is not None


def test_an_owner_may_choose_another_minimum(store: MemoryStore) -> None:
    commands.set_payout_schedule(
        store,
        paying.of(),
        schedule="monthly",
        minimum_nanos=60 * USD,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON,
    )
    assert paying.settle(store, earned(59 * USD)) is None
    assert paying.settle(store, earned(60 * USD)) is not None


def test_nobody_approves_their_own(store: MemoryStore) -> None:
    payout = paying.settle(store, earned(50 * USD), user=JOAN)
    assert payout is not None
    with pytest.raises(OwnPayout):
        paying.approve(store, payout, JOAN)
    with pytest.raises(OwnPayout):
        paying.approve(store, payout, OSCAR, is_own=True)
    paying.approve(store, payout, OSCAR)
    assert paying.payee(store).payouts[payout].state == "approved"


def test_above_the_limit_it_takes_two_people(store: MemoryStore) -> None:
    terms = PayoutTerms(alone_nanos_max=50 * USD - 1)
    payout = paying.settle(store, earned(50 * USD), terms=terms)
    assert payout is not None
    paying.approve(store, payout, JOAN)
    assert paying.payee(store).payouts[payout].state == "requested"
    with pytest.raises(ApprovedBySame):
        paying.approve(store, payout, JOAN)
    paying.approve(store, payout, OSCAR)
    assert paying.payee(store).payouts[payout].state == "approved"


def test_a_cancelled_payout_is_earnings_again_and_names_what_it_corrects(
    store: MemoryStore,
) -> None:
    payout = requested(store)
    paying.cancel(store, payout)
    assert book.totals(store)[paying.EARNINGS] == 0
    [asked, undone] = book.entries(store)
    assert undone.corrects == asked.entry_id  # type: ignore[union-attr]
    head = store.head()
    paying.cancel(store, payout)
    assert store.head() == head
    with pytest.raises(PayoutStateOtherwise):
        paying.approve(store, payout, JOAN)


@pytest.mark.parametrize("was_paid", [False, True])
def test_a_returned_payout_is_earnings_again(store: MemoryStore, *, was_paid: bool) -> None:
    payout = requested(store)
    paying.approve(store, payout, JOAN)
    send(store, payout, details_id=with_details(store))
    if was_paid:
        paying.paid(store, payout)
    paying.returned(store, payout)
    head = store.head()
    paying.returned(store, payout)
    assert store.head() == head
    totals = book.totals(store)
    assert not any(totals[each] for each in (paying.EARNINGS, TRANSIT, CASH))
    again = paying.settle(store, earned(50 * USD), period="2026-W02")
    assert again not in (None, payout)


def test_a_payout_is_in_one_file_only(store: MemoryStore) -> None:
    payout, details = requested(store), with_details(store)
    paying.approve(store, payout, JOAN)
    file_id = uuid4()
    send(store, payout, details_id=details, file_id=file_id)
    head = store.head()
    send(store, payout, details_id=details, file_id=file_id)
    assert store.head() == head
    with pytest.raises(PayoutStateOtherwise):
        send(store, payout, details_id=details)
    files = load(store, BankFiles, book.PLATFORM)
    assert files is not None and files.count == 1


def test_files_are_counted_and_their_ids_differ(store: MemoryStore) -> None:
    first, details = requested(store), with_details(store)
    second = paying.settle(store, earned(100 * USD), period="2026-W02")
    assert second is not None
    for payout in (first, second):
        paying.approve(store, payout, JOAN)
        send(store, payout, details_id=details)
    events = [each.event for each in store.read_all(limit=1_000).events]
    written = [each for each in events if isinstance(each, BankFileWritten)]
    assert [each.number for each in written] == [1, 2]
    assert len({each.message_id for each in written}) == 2


def test_a_file_is_written_whole_or_not_at_all(store: MemoryStore) -> None:
    first, details = requested(store), with_details(store)
    paying.approve(store, first, JOAN)
    second = paying.settle(store, earned(100 * USD), period="2026-W02")
    assert second is not None
    with pytest.raises(PayoutStateOtherwise):
        send(store, first, second, details_id=details)
    assert paying.payee(store).payouts[first].state == "approved"
    with pytest.raises(NothingToSend):
        send(store, details_id=details)


def test_nothing_is_sent_while_the_bank_account_changes(store: MemoryStore) -> None:
    payout, details = requested(store), with_details(store)
    paying.approve(store, payout, JOAN)
    other = uuid4()
    commands.propose_bank_details(
        store,
        paying.of(),
        DETAILS,
        details_id=other,
        wait_seconds=60,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON,
    )
    with pytest.raises(PayoutsPaused):
        send(store, payout, details_id=details)
    with pytest.raises(DetailsWait):
        commands.confirm_bank_details(
            store, paying.EARNINGS, other, user_id=IRIS, by=SOMEBODY, now=NOON
        )
    commands.withdraw_bank_details(
        store, paying.EARNINGS, other, user_id=OSCAR, by=SOMEBODY, now=NOON
    )
    with pytest.raises(DetailsUnknown):
        commands.confirm_bank_details(
            store, paying.EARNINGS, other, user_id=IRIS, by=SOMEBODY, now=paying.LATER
        )
    with pytest.raises(DetailsMissing):
        send(store, payout, details_id=other)
    send(store, payout, details_id=details)


def test_paid_is_paid_once_on_the_same_terms(store: MemoryStore) -> None:
    payout = requested(store)
    with pytest.raises(PayoutStateOtherwise):
        paying.paid(store, payout)
    paying.approve(store, payout, JOAN)
    send(store, payout, details_id=with_details(store))
    with pytest.raises(ReasonMissing):
        paying.paid(store, payout, " ")
    paying.paid(store, payout)
    head = store.head()
    paying.paid(store, payout)
    assert store.head() == head
    with pytest.raises(PayoutPaidOtherwise):
        paying.paid(store, payout, "TX-2")
    with pytest.raises(PayoutUnknown):
        paying.paid(store, uuid4())
