"""Write-offs and credit notes of one invoice give up or give back no more than was billed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID, uuid4

import pytest

from ledger import payments
from ledger.commands import invoices
from ledger.commands import receivables as commands
from ledger.domain.invoice_events import CreditedLine
from ledger.domain.receivables import NothingOwed
from ledger.domain.written_off import WrittenOffBefore
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Write
from ledger.models import InvoiceRow
from tests.conftest import SOMEBODY
from tests.ledger import invoiced
from tests.ledger.invoiced import JOAN, OSCAR
from tests.ledger.ledgerbook import usd
from tests.ledger.postpay import PostpayDesk
from tests.stripe_double.double import StripeDouble

pytestmark = pytest.mark.django_db
CENT = 10**7


@pytest.fixture
def desk(store: MemoryStore) -> Iterator[PostpayDesk]:
    """An account on credit whose month was invoiced with 12.34, without a payment service."""
    payments.install(lambda: None)
    double = StripeDouble().start()
    desk = PostpayDesk(store, double)
    desk.use()
    desk.invoice()
    yield desk
    double.stop()


def ask_write_off(desk: PostpayDesk) -> None:
    commands.ask_write_off(
        desk.store,
        desk.receivable.pk,
        write_off_id=uuid4(),
        reason="insolvent",
        user_id=JOAN,
        by=SOMEBODY,
        now=desk.now,
    )


def approve_write_off(desk: PostpayDesk) -> None:
    commands.approve_write_off(
        desk.store, desk.receivable.pk, user_id=OSCAR, by=SOMEBODY, now=desk.now
    )
    desk.follow()


def ask_credit(desk: PostpayDesk, cents: int) -> UUID:
    row, credit_id = InvoiceRow.objects.get(), uuid4()
    invoices.ask_credit_note(
        desk.store,
        credit_id=credit_id,
        invoice_id=row.pk,
        lines=[CreditedLine(line_id=row.lines[0]["line_id"], nanos=cents * CENT)],
        reason="charged twice",
        user_id=JOAN,
        by=SOMEBODY,
        now=desk.now,
    )
    return credit_id


def approve_credit(desk: PostpayDesk, credit_id: UUID) -> None:
    invoices.approve_credit_note(desk.store, credit_id, user_id=OSCAR, by=SOMEBODY, now=desk.now)
    desk.follow()


def overtaken(monkeypatch: pytest.MonkeyPatch, other: Callable[[], None]) -> None:
    """Let `other` happen once just before the next append of several streams."""
    append = MemoryStore.append_whole
    waiting = [other]

    def late(store: MemoryStore, writes: Sequence[Write]) -> list[Appended]:
        while waiting:
            waiting.pop()()
        return append(store, writes)

    monkeypatch.setattr(MemoryStore, "append_whole", late)


def test_what_was_written_off_is_not_credited_as_well(desk: PostpayDesk) -> None:
    ask_write_off(desk)
    approve_write_off(desk)

    with pytest.raises(WrittenOffBefore) as refused:
        invoiced.credit(desk.store, InvoiceRow.objects.get())

    assert refused.value.details["left"] == usd(0)
    assert refused.value.details["written_off"] == usd(12.34)
    assert desk.total == usd(0)


def test_what_was_paid_of_it_is_still_credited_and_no_more(desk: PostpayDesk) -> None:
    desk.enter("TX 1", 2.34)
    ask_write_off(desk)
    approve_write_off(desk)

    with pytest.raises(WrittenOffBefore) as refused:
        approve_credit(desk, ask_credit(desk, 235))
    assert refused.value.details["left"] == usd(2.34)

    approve_credit(desk, ask_credit(desk, 234))
    assert desk.total == usd(2.34)
    with pytest.raises(WrittenOffBefore):
        approve_credit(desk, ask_credit(desk, 1))


def test_a_credit_note_that_comes_first_lowers_what_is_written_off(desk: PostpayDesk) -> None:
    ask_write_off(desk)
    approve_credit(desk, ask_credit(desk, 234))
    approve_write_off(desk)

    assert (desk.receivable.written_off_nanos, desk.total) == (10 * 10**9, usd(0))


def test_a_credit_note_in_the_same_moment_lowers_what_is_written_off(
    desk: PostpayDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_write_off(desk)
    credit_id = ask_credit(desk, 234)
    overtaken(monkeypatch, lambda: approve_credit(desk, credit_id))

    approve_write_off(desk)

    assert (desk.receivable.written_off_nanos, desk.total) == (10 * 10**9, usd(0))


def test_all_of_it_credited_in_the_same_moment_leaves_nothing_to_write_off(
    desk: PostpayDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_write_off(desk)
    credit_id = ask_credit(desk, 1234)
    overtaken(monkeypatch, lambda: approve_credit(desk, credit_id))

    with pytest.raises(NothingOwed):
        approve_write_off(desk)

    assert desk.total == usd(0)


def test_a_write_off_in_the_same_moment_leaves_nothing_to_credit(
    desk: PostpayDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_write_off(desk)
    credit_id = ask_credit(desk, 234)
    overtaken(monkeypatch, lambda: approve_write_off(desk))

    with pytest.raises(WrittenOffBefore):
        approve_credit(desk, credit_id)

    assert desk.total == usd(0)
