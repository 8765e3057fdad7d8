"""Invoices at Stripe: made as drafts, line by line, finalized and sent; each step with its key."""

from __future__ import annotations

from typing import Any

import stripe

from ledger.payments.port import BillState, BillWanted, PaymentsRefused
from ledger.payments.stripe_asking import ask, id_of

WITH_PAYMENTS: Any = {"expand": ["payments"]}


def send(client: stripe.StripeClient, wanted: BillWanted, *, key: str) -> BillState:
    """Make an invoice of ours there and send it; a process that is killed goes on with it.

    Raises: PaymentsRefused, where it does not come to our total: then it is not finalized.
    """
    asked: Any = {
        "customer": wanted.payer,
        "collection_method": "send_invoice",
        "days_until_due": wanted.due_days,
        "auto_advance": False,
        "pending_invoice_items_behavior": "exclude",
        "currency": wanted.currency.lower(),
        "number": wanted.number,
        "metadata": dict(wanted.marks),
    }
    draft = ask(lambda: client.v1.invoices.create(asked, {"idempotency_key": key}))
    bill = str(draft.id)
    for place, (title, minor) in enumerate(wanted.lines):
        _add_line(client, bill, wanted, title, minor, key=f"{key}:line:{place}")
    said = read(client, bill)
    if said.minor != wanted.minor:
        words = f"it comes to {said.minor} there, and {wanted.minor} here"
        raise PaymentsRefused("total-differs", words)
    if said.state == "draft":
        again: Any = {"idempotency_key": f"{key}:finalize"}
        ask(lambda: client.v1.invoices.finalize_invoice(bill, {"auto_advance": False}, again))
    sent: Any = {"idempotency_key": f"{key}:send"}
    ask(lambda: client.v1.invoices.send_invoice(bill, {}, sent))
    return read(client, bill)


def _add_line(
    client: stripe.StripeClient, bill: str, wanted: BillWanted, title: str, minor: int, *, key: str
) -> None:
    asked: Any = {
        "customer": wanted.payer,
        "invoice": bill,
        "amount": minor,
        "currency": wanted.currency.lower(),
        "description": title[:500],
    }
    ask(lambda: client.v1.invoice_items.create(asked, {"idempotency_key": key}))


def read(client: stripe.StripeClient, bill: str) -> BillState:
    """Return an invoice with what was paid of it."""
    said = ask(lambda: client.v1.invoices.retrieve(bill, WITH_PAYMENTS)).to_dict()
    return BillState(
        bill=said["id"],
        state=said.get("status") or "draft",
        minor=said["total"],
        left=int(said.get("amount_remaining") or 0),
        currency=said["currency"].upper(),
        url=said.get("hosted_invoice_url") or "",
        payments=tuple(
            (intent, minor) for intent, status, minor in _payments(said) if status == "paid"
        ),
        marks=said.get("metadata") or {},
        trying=next((intent for intent, status, _ in _payments(said) if status == "open"), ""),
    )


def _payments(said: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return id, state and amount of what Stripe took or tries to: by a PaymentIntent.

    What was paid in another way has none.
    """
    found = []
    for each in (said.get("payments") or {}).get("data", []):
        intent = id_of((each.get("payment") or {}).get("payment_intent"))
        if intent:
            found.append((intent, str(each.get("status")), int(each.get("amount_paid") or 0)))
    return found


def paid_by(client: stripe.StripeClient, intent: str) -> str:
    """Return the invoice that a payment paid; empty: it paid none."""
    wanted: Any = {"payment": {"type": "payment_intent", "payment_intent": intent}, "limit": 1}
    found = ask(lambda: client.v1.invoice_payments.list(wanted)).to_dict()["data"]
    return (id_of(found[0].get("invoice")) or "") if found else ""


def lower(client: stripe.StripeClient, bill: str, minor: int, *, words: str, key: str) -> None:
    """Credit a part of what is left of an open invoice, so that it is not collected."""
    asked: Any = {"invoice": bill, "amount": minor, "memo": words[:500]}
    ask(lambda: client.v1.credit_notes.create(asked, {"idempotency_key": key}))


def settle(client: stripe.StripeClient, bill: str, *, key: str) -> None:
    """Mark an invoice as paid out of band; nothing where it is not open any more."""
    _unless_over(
        client,
        bill,
        lambda: client.v1.invoices.pay(bill, {"paid_out_of_band": True}, {"idempotency_key": key}),
    )


def give_up(client: stripe.StripeClient, bill: str, *, key: str) -> None:
    """Mark an invoice as uncollectible; nothing where it is not open any more."""
    _unless_over(
        client,
        bill,
        lambda: client.v1.invoices.mark_uncollectible(bill, {}, {"idempotency_key": key}),
    )


def _unless_over(client: stripe.StripeClient, bill: str, call: Any) -> None:
    try:
        ask(call)
    except PaymentsRefused:
        if read(client, bill).state == "open":
            raise
