"""A wallet in use: topped up by card, with a saved card, a refund under way and a chargeback."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ledger.commands import refunds
from ledger.commands import wallet as commands
from ledger.domain.ids import PaymentId, RefundId, SubscriberId, UserId
from ledger.eventstore.port import EventStore
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import usd


def use_wallet(store: EventStore) -> None:
    """Let all of it happen on a new wallet."""
    account_id = book.open_funds(store, unit=SubscriberId(uuid4()))
    who: dict[str, Any] = {"account_id": account_id, "by": SOMEBODY, "now": NOON}
    payment_id, refund_id = PaymentId(uuid4()), RefundId(uuid4())
    asked_by, approved_by = UserId(uuid4()), UserId(uuid4())
    intent = f"pi_{payment_id.hex}"
    commands.request_top_up(store, payment_id=payment_id, money=usd(50), asked_by=asked_by, **who)
    commands.note_payer(store, payer="cus_1", **who)
    commands.post_top_up(
        store,
        payment_id=payment_id,
        intent=intent,
        money=usd(50),
        platform_id=book.PLATFORM,
        **who,
    )
    commands.note_method(store, method=f"pm_{payment_id.hex}", label="Visa", **who)
    refunds.ask_for_refund(
        store, refund_id=refund_id, money=usd(20), reason="unused", asked_by=asked_by, **who
    )
    refunds.approve_refund(store, refund_id=refund_id, approved_by=approved_by, **who)
    refunds.note_dispute(
        store,
        dispute=f"du_{payment_id.hex}",
        intent=intent,
        money=usd(40),
        reason="fraudulent",
        platform_id=book.PLATFORM,
        **who,
    )
