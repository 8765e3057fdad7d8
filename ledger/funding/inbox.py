"""Notices of the payment service: each kept once, answered at once, and looked into by a loop.

A notice says only that something happened. What, is asked of the service itself, so it does not
matter in which order notices come, how often, or how late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog
from django.db.models import QuerySet

from ledger.domain.redaction import redact
from ledger.domain.refusal import Refusal, Unknown
from ledger.eventstore.port import EventStore, Meta
from ledger.following import AWAY
from ledger.funding import billing
from ledger.funding.settling import (
    keep_card,
    settle_dispute,
    settle_intent,
    settle_method,
    settle_page,
    settle_refund,
)
from ledger.funding.tries import AWAY_IN_A_ROW_MAX, ERROR_CHARS_MAX, pause_after
from ledger.models import PaymentNotice
from ledger.payments import default_payments
from ledger.payments.port import Payments, PaymentsAway

NOTICES_MAX = 100
TRIES_MAX = 30
"""With pauses of an hour at most: a day."""
KEPT_FOR = timedelta(days=90)

Handler = Callable[[EventStore, Payments, PaymentNotice, datetime], None]

log = structlog.get_logger()


class NotTaken(Unknown):
    """No payment service is set up here, so nobody is expected to call this address.

    Set OFFPEAK_STRIPE_KEY and OFFPEAK_STRIPE_WEBHOOK_SECRET.
    """


def take(raw: bytes, signature: str, *, now: datetime) -> bool:
    """Keep a notice as it came over the network; tell if it is new.

    Raises: NotTaken, NoticeForged.
    """
    payments = default_payments()
    if payments is None:
        raise NotTaken()
    said = payments.notice(raw, signature)
    row = PaymentNotice(
        notice=said.notice[:120],
        kind=said.kind[:120],
        about=said.about[:120],
        account=said.account[:80],
        state="new",
        again_at=now,
        received_at=now,
    )
    known = PaymentNotice.objects.filter(pk=row.pk).exists()
    PaymentNotice.objects.bulk_create([row], ignore_conflicts=True)
    return not known


def run_once(store: EventStore, *, now: datetime) -> int:
    """Look into the notices that are due, each alone; return how many are settled."""
    payments = default_payments()
    if payments is None:
        return 0
    due = PaymentNotice.objects.filter(state="new", again_at__lte=now)
    done = away = 0
    for row in due.order_by("again_at", "notice")[:NOTICES_MAX]:
        handler = handler_of(row.kind)
        try:
            if handler is not None:
                handler(store, payments, row, now)
        except AWAY:
            raise
        except Exception as failure:  # kept with its message: others are read
            _again_later(row, failure, now=now)
            away = away + 1 if isinstance(failure, PaymentsAway) else 0
            if away >= AWAY_IN_A_ROW_MAX:
                break
            continue
        away = 0
        row.state, row.error = ("done" if handler is not None else "ignored"), ""
        row.save(update_fields=["state", "error"])
        done += 1
    return done


def forget_old(*, now: datetime) -> int:
    """Drop notices that were settled long ago: the service sends none again after a month."""
    old = PaymentNotice.objects.filter(received_at__lt=now - KEPT_FOR).exclude(state="new")
    return old.delete()[0]


def given_up() -> QuerySet[PaymentNotice]:
    """Return the notices that could not be settled, the oldest first."""
    return PaymentNotice.objects.filter(state="given-up").order_by("received_at", "notice")


def handler_of(kind: str) -> Handler | None:
    """Return who looks into notices of a kind; None: nobody does, it is kept and left."""
    return next((each for name, each in _handlers.items() if kind.startswith(name)), None)


def install(handlers: Mapping[str, Handler]) -> None:
    """Say who else looks into notices, by how their kind begins, such as `transfer.`."""
    _handlers.update(handlers)


def _again_later(row: PaymentNotice, failure: Exception, *, now: datetime) -> None:
    row.tries += 1
    row.again_at = now + pause_after(row.tries)
    row.state = "given-up" if row.tries >= TRIES_MAX else "new"
    code = failure.code if isinstance(failure, Refusal) else type(failure).__name__
    row.error = redact(f"{code}: {failure}")[:ERROR_CHARS_MAX]
    row.save(update_fields=["tries", "again_at", "state", "error"])
    log.warning("payments.notice-failed", notice=row.notice, kind=row.kind, error=row.error)


def _by(row: PaymentNotice) -> Meta:
    return Meta(actor="loop:payment-notices")


def _intent(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    state = payments.intent(row.about)
    if settle_intent(store, state, by=_by(row), now=now) and state.state == "succeeded":
        keep_card(store, payments, state, by=_by(row), now=now)


def _page(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    settle_page(store, payments, payments.page(row.about), by=_by(row), now=now)


def _charge(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    intent = payments.intent_of(row.about)
    for state in payments.refunds_of(intent) if intent else ():
        settle_refund(store, state, by=_by(row), now=now)


def _refund(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    settle_refund(store, payments.refund(row.about), by=_by(row), now=now)


def _dispute(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    state = payments.dispute(row.about)
    if not settle_dispute(store, payments, state, by=_by(row), now=now):
        billing.settle_taken_back(store, payments, state, by=_by(row), now=now)


def _method(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    settle_method(store, payments.method(row.about), by=_by(row), now=now)


_handlers: dict[str, Handler] = {
    "payment_intent.": _intent,
    "checkout.session.": _page,
    "charge.dispute.": _dispute,
    "charge.refund.": _refund,
    "charge.refunded": _charge,
    "refund.": _refund,
    "payment_method.": _method,
    "invoice.": billing.heard,
}
