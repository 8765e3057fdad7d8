"""Ways to money that is not there, or to stop the books: each is refused and changes nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ledger import paying
from ledger.access import Actor
from ledger.commands import refunds, wallet
from ledger.domain.accounts import CurrencyMismatch, FundsInsufficient
from ledger.domain.ids import PaymentId, RefundId, SubscriberId
from ledger.domain.money import NANOS_MAX, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.returns import WalletShort
from ledger.eventstore.memory import MemoryStore
from ledger.following import follow_projections
from ledger.models import AccountRow, Checkpoint
from ledger.projections.money import MONEY
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.all_kinds import lived
from tests.ledger.all_kinds.world import found
from tests.ledger.funding_desk import JOAN, OSCAR
from tests.ledger.ledgerbook import FUNDS, usd

WHO: dict[str, Any] = {"account_id": FUNDS, "by": SOMEBODY, "now": NOON}


@pytest.fixture
def paid(store: MemoryStore) -> MemoryStore:
    """Return a wallet into which fifty came by each of two cards."""
    book.open_everybody(store)
    book.open_funds(store)
    for name in ("pi_1", "pi_2"):
        payment_id = PaymentId(uuid4())
        wallet.request_top_up(store, payment_id=payment_id, money=usd(50), asked_by=JOAN, **WHO)
        wallet.post_top_up(
            store,
            payment_id=payment_id,
            intent=name,
            money=usd(50),
            platform_id=book.PLATFORM,
            **WHO,
        )
    return store


def taken_back(store: MemoryStore, money: Money, intent: str = "pi_1") -> None:
    refunds.note_dispute(
        store,
        dispute=f"du_{intent}",
        intent=intent,
        money=money,
        reason="fraudulent",
        platform_id=book.PLATFORM,
        **WHO,
    )


def asked(store: MemoryStore, money: Money) -> RefundId:
    refund_id = RefundId(uuid4())
    refunds.ask_for_refund(
        store, refund_id=refund_id, money=money, reason="unused", asked_by=JOAN, **WHO
    )
    return refund_id


def test_what_a_bank_took_is_not_sent_back_by_another_card(paid: MemoryStore) -> None:
    """The refund was asked for and set aside before; then half of the wallet was gone."""
    book.hold(paid, usd(50))
    refund_id = asked(paid, usd(50))
    taken_back(paid, usd(50))
    head = paid.head()

    with pytest.raises(WalletShort):
        refunds.approve_refund(paid, refund_id=refund_id, approved_by=OSCAR, **WHO)
    assert paid.head() == head

    book.fund(paid, usd(50))
    refunds.approve_refund(paid, refund_id=refund_id, approved_by=OSCAR, **WHO)
    assert book.account(paid).available == usd(0)


def test_a_refund_that_failed_is_not_posted_by_a_word_that_comes_late(paid: MemoryStore) -> None:
    refund_id = asked(paid, usd(20))
    refunds.approve_refund(paid, refund_id=refund_id, approved_by=OSCAR, **WHO)
    part: dict[str, Any] = {"refund_id": refund_id, "number": 0, **WHO}
    refunds.note_part_failed(paid, reason="no such account", **part)

    refunds.note_part_paid(paid, reference="re_1", platform_id=book.PLATFORM, **part)

    assert book.account(paid).total == book.account(paid).available == usd(100)


def test_a_dispute_that_was_lost_gives_nothing_back_when_it_is_heard_of_otherwise(
    paid: MemoryStore,
) -> None:
    """The wallet has it as lost; the account must not have it as won."""
    taken_back(paid, usd(10))
    for won in (False, True):
        refunds.note_dispute_closed(paid, dispute="du_pi_1", won=won, **WHO)

    assert book.account(paid).total == usd(90)


def test_a_dispute_that_was_won_gives_back_once_whatever_is_heard_later(paid: MemoryStore) -> None:
    taken_back(paid, usd(10))
    for won in (True, False, True):
        refunds.note_dispute_closed(paid, dispute="du_pi_1", won=won, **WHO)

    assert book.account(paid).total == usd(100)


def test_a_dispute_in_another_currency_than_the_payment_takes_nothing(paid: MemoryStore) -> None:
    head = paid.head()

    with pytest.raises(CurrencyMismatch):
        taken_back(paid, Money(usd(10).nanos, "EUR"))

    assert paid.head() == head


@pytest.mark.django_db
def test_no_account_comes_to_more_than_a_column_holds(store: MemoryStore) -> None:
    """A cost centre without a limit has one: else its holds would stop everybody's books."""
    book.open_everybody(store)
    account_id = book.open_funds(
        store, kind="chargeback", overdraft_nanos=None, unit=SubscriberId(uuid4())
    )
    half = Money(NANOS_MAX // 2 + 1)
    book.hold(store, half, account=account_id)

    with pytest.raises(FundsInsufficient):
        book.hold(store, half, account=account_id, hold_id=book.hold_named(2))

    while follow_projections(store, [MONEY]):
        pass
    assert Checkpoint.objects.get(name=MONEY.name).error == ""
    assert AccountRow.objects.get(pk=account_id).held_nanos == half.nanos


@pytest.mark.django_db
def test_what_is_contested_after_a_payout_was_approved_is_not_sent(store: MemoryStore) -> None:
    """Payout after a later dispute: frozen is frozen, until somebody decides."""
    found(store)
    contest, dismiss = lived.contested(0, lived.WALLET, upheld=False)
    earned = [*lived.top_ups(), lived.placed(0, lived.WALLET), *lived.uses(0, lived.WALLET)]
    asked = [each for each in lived.month_end() if each[0] in ("settle", "approve the payout")]
    finance = Actor(tenant_id=PLATFORM_ID, roles=frozenset({"finance"}), is_platform=True)

    def waiting() -> int:
        lived.follow(store)
        return len(paying.sendable(finance, "USD"))

    for _, ask in (*earned, *asked):
        ask(store)
    assert waiting() == 1
    contest[1](store)
    assert waiting() == 0
    dismiss[1](store)
    assert waiting() == 1
