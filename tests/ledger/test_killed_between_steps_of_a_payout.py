"""A process that pays owners is killed with SIGKILL at each append; the next one goes on there.

Whatever it was killed at, the same steps asked for again end in the same books: one payout by bank
that came back, one over Stripe of which a part came back, each of their entries once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid5

import pytest
from django.db import connection

from ledger.commands import connect as over_stripe
from ledger.commands import payouts as by_bank
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.ids import TenantId
from ledger.domain.payees import Payee
from ledger.domain.payout_events import BankFileLine, PayoutEntry
from ledger.domain.settling import Due
from ledger.eventstore.port import Appended, Meta, Write, load
from ledger.eventstore.postgres import PostgresStore
from tests.conftest import NOON
from tests.forking import Fork
from tests.ledger import ledgerbook as book
from tests.ledger import paying
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import IRIS, JOAN, OSCAR

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]
SECONDS_MAX = 60.0
DoneT = TypeVar("DoneT")
PAID = usd(20).nanos
LATER = NOON + timedelta(hours=1)
DAY = NOON.date()


class Counting(PostgresStore):
    """Counts appends, and dies before or after one of them."""

    def __init__(self, at: int = 0, *, after: bool = False) -> None:
        super().__init__()
        self.count, self.at, self.after = 0, at, after

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        return self._counted(partial(super().append_each, writes))

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        return self._counted(partial(super().append_whole, writes))

    def append(self, *given: Any, **named: Any) -> Appended:
        return self._counted(partial(super().append, *given, **named))

    def _counted(self, act: Callable[[], DoneT]) -> DoneT:
        self.count += 1
        if self.count == self.at and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = act()
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def pay(store: PostgresStore, owner: TenantId) -> None:
    """Ask for every step of two payouts, under ids that follow from the owner."""
    of = paying.of(owner)
    account_id = of.account_id

    def by(step: str) -> Meta:
        return Meta(actor="test", command_id=uuid5(owner, step))

    def asked(period: str) -> UUID:
        found = paying.earned((load(store, Payee, account_id) or Payee()).paid_out + PAID)
        made, _ = by_bank.settle_earnings(
            store,
            of,
            Due(period, DAY),
            found,
            terms=paying.TERMS,
            unit=paying.CENT,
            platform_id=book.PLATFORM,
            user_id=None,
            by=by(f"settle {period}"),
            now=NOON,
        )
        assert made is not None
        by_bank.approve_payout(
            store, account_id, made, user_id=JOAN, is_own=False, by=by(f"yes {period}"), now=NOON
        )
        return made

    _by_bank(store, asked("w1"), owner, by)
    _over_stripe(store, partial(asked, "w2"), owner, by)


def _by_bank(
    store: PostgresStore, payout: UUID, owner: TenantId, by: Callable[[str], Meta]
) -> None:
    of, details = paying.of(owner), uuid5(owner, "details")
    by_bank.propose_bank_details(
        store,
        of,
        BankDetails(name="Lab", iban="DE89370400440532013000"),
        details_id=details,
        wait_seconds=0,
        user_id=IRIS,
        by=by("propose"),
        now=NOON,
    )
    by_bank.confirm_bank_details(
        store, of.account_id, details, user_id=IRIS, by=by("confirm"), now=NOON
    )
    line = BankFileLine(
        payout_id=payout,
        account_id=of.account_id,
        details_id=details,
        end_to_end_id=payout.hex[:20],
        nanos=PAID,
    )
    draft = Draft(
        file_id=uuid5(owner, "file"),
        format="csv",
        currency="USD",
        debtor=Debtor(),
        execute_on=DAY,
        lines=[line],
    )
    by_bank.write_bank_file(
        store,
        draft,
        render=lambda event: event.message_id.encode(),
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=by("file"),
        now=NOON,
    )
    where = {"currency": "USD", "platform_id": book.PLATFORM, "user_id": JOAN}
    by_bank.mark_paid(
        store,
        of.account_id,
        payout,
        reference="TX",
        paid_on=DAY,
        by=by("paid"),
        now=NOON,
        **where,  # type: ignore[arg-type]
    )
    by_bank.mark_returned(
        store,
        of.account_id,
        payout,
        reason="closed",
        by=by("returned"),
        now=NOON,
        **where,  # type: ignore[arg-type]
    )


def _over_stripe(
    store: PostgresStore,
    asked: Callable[[], UUID],
    owner: TenantId,
    by: Callable[[str], Meta],
) -> None:
    of = paying.of(owner)
    account_id = of.account_id
    over_stripe.ask_stripe_account(store, of, country="", user_id=IRIS, by=by("account"), now=NOON)
    over_stripe.note_stripe_account(
        store, account_id, made=f"acct_{owner}", by=by("made"), now=NOON
    )
    over_stripe.note_account_state(
        store, account_id, state="ready", missing=(), words="", by=by("ready"), now=NOON
    )
    over_stripe.choose_channel(
        store, of, "stripe", wait_seconds=0, user_id=IRIS, by=by("channel"), now=NOON
    )
    payout = asked()
    over_stripe.send_over_stripe(store, account_id, payout, by=by("send"), now=LATER)
    over_stripe.note_waiting(
        store, account_id, payout, reason="too little", by=by("wait"), now=LATER
    )
    over_stripe.note_transfer(
        store,
        account_id,
        payout,
        reference="tr_1",
        paid_on=DAY,
        currency="USD",
        platform_id=book.PLATFORM,
        by=by("transfer"),
        now=LATER,
    )
    over_stripe.ask_transfer_back(
        store,
        account_id,
        payout,
        number=1,
        money=usd(5),
        unit=paying.CENT,
        reason="twice",
        user_id=OSCAR,
        by=by("ask back"),
        now=LATER,
    )
    over_stripe.note_back(
        store,
        account_id,
        payout,
        number=1,
        reference="trr_1",
        money=usd(5),
        platform_id=book.PLATFORM,
        by=by("back"),
        now=LATER,
    )


def pay_and_die(database: str, owner: TenantId, at: int, *, after: bool) -> None:
    connection.settings_dict["NAME"] = database
    pay(Counting(at, after=after), owner)


def die_before(database: str, owner: TenantId, at: int) -> None:
    pay_and_die(database, owner, at, after=False)


def die_after(database: str, owner: TenantId, at: int) -> None:
    pay_and_die(database, owner, at, after=True)


def entries(store: PostgresStore, owner: TenantId) -> list[tuple[str, int]]:
    """Return the owner's entries: what each is, and what it moves."""
    events = [each.event for each in store.read_stream(f"payee-{paying.of(owner).account_id}")]
    return [(each.name, each.money.nanos) for each in events if isinstance(each, PayoutEntry)]


def test_whatever_append_it_is_killed_at_the_books_end_the_same(tmp_path: Path) -> None:
    counting = Counting()
    book.open_everybody(counting)
    untouched = TenantId(uuid5(book.WORLD, "untouched"))
    pay(counting, untouched)  # opens the account of what is on its way, for all
    counting.count = 0
    other = TenantId(uuid5(book.WORLD, "other"))
    pay(counting, other)
    appends, wanted = counting.count, entries(counting, other)
    assert appends >= 14 and len(wanted) == 6 and entries(counting, untouched) == wanted
    database = str(connection.settings_dict["NAME"])

    paid = 2
    # Dead after one append is dead before the next one.
    for die, at in [(die_before, 1), *((die_after, at) for at in range(1, appends + 1))]:
        owner = TenantId(uuid5(book.WORLD, f"{die.__name__} {at}"))
        log = tmp_path / f"{die.__name__}-{at}.log"
        doomed = Fork(die, database, owner, at, log=log)
        assert doomed.wait(SECONDS_MAX) == -signal.SIGKILL, log.read_text()
        pay(PostgresStore(), owner)
        pay(PostgresStore(), owner)
        assert entries(counting, owner) == wanted, f"{die.__name__} {at}"
        paid += 1
    totals = book.totals(PostgresStore())
    assert sum(totals.values()) == 0 and totals[transit_account(book.PLATFORM, "USD")] == 0
    assert totals[cash_account(book.PLATFORM, "USD")] == paid * (PAID - usd(5).nanos)
