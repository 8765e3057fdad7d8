"""Stripe as a payment service, by its own library.

Its answers are pinned to one version of its API, so that an upgrade of the account there changes
nothing here. Retries are ours: the library makes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import stripe

from ledger.payments import stripe_bills
from ledger.payments.port import (
    NOTICE_SECONDS_MAX,
    BillState,
    BillWanted,
    DisputeState,
    IntentState,
    MethodState,
    Movement,
    Notice,
    NoticeForged,
    PageState,
    PageWanted,
    PaymentsRefused,
    RefundState,
)
from ledger.payments.stripe_asking import PAGE_SIZE, ask, id_of
from ledger.payments.stripe_connect import StripeConnect

SECONDS_MAX = 20
"""How long one call may take. What is not answered by then is asked again, with its key."""


class StripePayments(StripeConnect):
    """Payments over Stripe. key: a secret or restricted key. secret: what signs its notices.

    connect_secret: what signs those about owners' accounts, of an endpoint of their own.
    """

    def __init__(self, key: str, *, secret: str, url: str = "", connect_secret: str = "") -> None:
        """Begin. url: another address of its API, such as that of a double; nothing is sent yet."""
        self.is_test = not key.startswith(("sk_live_", "rk_live_"))
        self._secrets = tuple(filter(None, (secret, connect_secret)))
        self.client = stripe.StripeClient(
            key,
            base_addresses={"api": url} if url else {},
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=SECONDS_MAX),
        )

    def payer(self, title: str, *, marks: Mapping[str, str], key: str, email: str = "") -> str:
        """Make a customer."""
        asked: Any = {"name": title[:256], "metadata": dict(marks)}
        if email:
            asked["email"] = email
        made = ask(lambda: self.client.v1.customers.create(asked, {"idempotency_key": key}))
        return str(made.id)

    def send_bill(self, wanted: BillWanted, *, key: str) -> BillState:
        """Make an Invoice that is sent, not charged."""
        return stripe_bills.send(self.client, wanted, key=key)

    def bill(self, bill: str) -> BillState:
        """Return an Invoice."""
        return stripe_bills.read(self.client, bill)

    def bill_of(self, intent: str) -> str:
        """Return the Invoice of a PaymentIntent."""
        return stripe_bills.paid_by(self.client, intent)

    def lower_bill(self, bill: str, minor: int, *, words: str, key: str) -> None:
        """Make a Credit Note for an open Invoice."""
        stripe_bills.lower(self.client, bill, minor, words=words, key=key)

    def settle_bill(self, bill: str, *, key: str) -> None:
        """Mark an Invoice as paid out of band."""
        stripe_bills.settle(self.client, bill, key=key)

    def give_bill_up(self, bill: str, *, key: str) -> None:
        """Mark an Invoice as uncollectible."""
        stripe_bills.give_up(self.client, bill, key=key)

    def open_page(self, wanted: PageWanted, *, key: str) -> PageState:
        """Make a Checkout Session for one payment."""
        marks = dict(wanted.marks)
        intent: dict[str, Any] = {"metadata": marks}
        if wanted.keep_card:
            intent["setup_future_usage"] = "off_session"
        price = {
            "currency": wanted.currency.lower(),
            "unit_amount": wanted.minor,
            "product_data": {"name": wanted.title},
        }
        asked: Any = {
            "mode": "payment",
            "customer": wanted.payer,
            "client_reference_id": marks.get("offpeak_payment", ""),
            "line_items": [{"price_data": price, "quantity": 1}],
            "metadata": marks,
            "payment_intent_data": intent,
            "success_url": wanted.back,
            "cancel_url": wanted.away,
        }
        made = ask(lambda: self.client.v1.checkout.sessions.create(asked, {"idempotency_key": key}))
        return _page(made.to_dict())

    def page(self, page: str) -> PageState:
        """Return a Checkout Session."""
        return _page(ask(lambda: self.client.v1.checkout.sessions.retrieve(page)).to_dict())

    def charge(
        self,
        *,
        payer: str,
        method: str,
        minor: int,
        currency: str,
        marks: Mapping[str, str],
        key: str,
    ) -> IntentState:
        """Make and confirm a PaymentIntent off-session."""
        asked: Any = {
            "amount": minor,
            "currency": currency.lower(),
            "customer": payer,
            "payment_method": method,
            "confirm": True,
            "off_session": True,
            "metadata": dict(marks),
        }
        made = ask(lambda: self.client.v1.payment_intents.create(asked, {"idempotency_key": key}))
        return _intent(made.to_dict())

    def intent(self, intent: str) -> IntentState:
        """Return a PaymentIntent."""
        return _intent(ask(lambda: self.client.v1.payment_intents.retrieve(intent)).to_dict())

    def give_back(
        self, *, intent: str, minor: int, marks: Mapping[str, str], key: str
    ) -> RefundState:
        """Make a Refund."""
        asked: Any = {"payment_intent": intent, "amount": minor, "metadata": dict(marks)}
        made = ask(lambda: self.client.v1.refunds.create(asked, {"idempotency_key": key}))
        return _refund(made.to_dict())

    def refunds_of(self, intent: str) -> list[RefundState]:
        """Return the Refunds of a PaymentIntent."""
        asked: Any = {"payment_intent": intent, "limit": PAGE_SIZE}
        return [
            _refund(each.to_dict()) for each in ask(lambda: self.client.v1.refunds.list(asked)).data
        ]

    def refund(self, refund: str) -> RefundState:
        """Return a Refund."""
        return _refund(ask(lambda: self.client.v1.refunds.retrieve(refund)).to_dict())

    def dispute(self, dispute: str) -> DisputeState:
        """Return a Dispute."""
        said = ask(lambda: self.client.v1.disputes.retrieve(dispute)).to_dict()
        return DisputeState(
            dispute=said["id"],
            state=_dispute_state(said["status"]),
            intent=id_of(said.get("payment_intent")),
            minor=said["amount"],
            currency=said["currency"].upper(),
            reason=said["reason"],
        )

    def method(self, method: str) -> MethodState:
        """Return a PaymentMethod."""
        said = ask(lambda: self.client.v1.payment_methods.retrieve(method)).to_dict()
        card = said.get("card") or {}
        label = said["type"].replace("_", " ")
        if card:
            until = f"{card['exp_month']:02d}/{card['exp_year']}"
            label = f"{card['brand'].title()} ending in {card['last4']}, {until}"
        return MethodState(method=said["id"], payer=id_of(said.get("customer")), label=label)

    def forget_method(self, method: str, *, key: str) -> None:
        """Detach a PaymentMethod."""
        try:
            ask(lambda: self.client.v1.payment_methods.detach(method, {}, {"idempotency_key": key}))
        except PaymentsRefused:
            if self.method(method).payer:
                raise

    def movements(self, since: datetime, until: datetime) -> Iterator[Movement]:
        """Yield BalanceTransactions."""
        span = {"gte": int(since.timestamp()), "lt": int(until.timestamp())}
        asked: Any = {"created": span, "limit": PAGE_SIZE}
        while True:
            page = ask(partial(self.client.v1.balance_transactions.list, asked))
            for each in page.data:
                yield _movement(each.to_dict())
            if not page.has_more or not page.data:
                return
            asked = {**asked, "starting_after": page.data[-1].id}

    def intent_of(self, source: str) -> str:
        """Return the PaymentIntent of a Charge, Refund or Dispute."""
        if source.startswith("pi_"):
            return source
        if source.startswith(("ch_", "py_")):
            said = ask(lambda: self.client.v1.charges.retrieve(source)).to_dict()
        elif source.startswith(("re_", "pyr_")):
            said = ask(lambda: self.client.v1.refunds.retrieve(source)).to_dict()
        elif source.startswith(("du_", "dp_")):
            said = ask(lambda: self.client.v1.disputes.retrieve(source)).to_dict()
        else:
            return ""
        return id_of(said.get("payment_intent"))

    def notice(self, raw: bytes, signature: str) -> Notice:
        """Read a webhook's body."""
        try:
            said = self._signed(raw, signature)
            about = said["data"]["object"]
            return Notice(
                notice=str(said["id"]),
                kind=str(said["type"]),
                about=str(about.get("id") or ""),
                account=str(said.get("account") or ""),
            )
        except stripe.SignatureVerificationError as wrong:
            raise NoticeForged(str(wrong.user_message or wrong)) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoticeForged("its body cannot be read") from None

    def _signed(self, raw: bytes, signature: str) -> dict[str, Any]:
        """Return what one of the secrets signed."""
        *others, last = self._secrets
        for secret in others:
            with suppress(stripe.SignatureVerificationError):
                return _read(raw, signature, secret)
        return _read(raw, signature, last)


def _read(raw: bytes, signature: str, secret: str) -> dict[str, Any]:
    said: dict[str, Any] = stripe.Webhook.construct_event(
        raw, signature, secret, NOTICE_SECONDS_MAX, api_key="none"
    ).to_dict()
    return said


def _page(said: dict[str, Any]) -> PageState:
    return PageState(
        page=said["id"],
        url=said.get("url") or "",
        is_expired=said.get("status") == "expired",
        intent=id_of(said.get("payment_intent")),
        marks=said.get("metadata") or {},
    )


def _intent(said: dict[str, Any]) -> IntentState:
    status, failure = said["status"], said.get("last_payment_error") or {}
    state = {"succeeded": "succeeded", "canceled": "failed"}.get(status, "open")
    return IntentState(
        intent=said["id"],
        state=state,
        minor=said.get("amount_received") or 0,
        currency=said["currency"].upper(),
        marks=said.get("metadata") or {},
        method=id_of(said.get("payment_method")),
        words=failure.get("message") or said.get("cancellation_reason") or "",
    )


def _refund(said: dict[str, Any]) -> RefundState:
    states = {"succeeded": "paid", "failed": "failed", "canceled": "failed"}
    return RefundState(
        refund=said["id"],
        state=states.get(said.get("status") or "", "open"),
        intent=id_of(said.get("payment_intent")),
        minor=said["amount"],
        marks=said.get("metadata") or {},
        words=said.get("failure_reason") or "",
    )


def _dispute_state(status: str) -> str:
    if status.startswith("warning") or status == "prevented":
        return "inquiry"
    return status if status in ("won", "lost") else "open"


def _movement(said: dict[str, Any]) -> Movement:
    return Movement(
        movement=said["id"],
        kind=said["type"],
        minor=said["amount"],
        fee_minor=said["fee"],
        currency=said["currency"].upper(),
        source=id_of(said.get("source")),
        at=datetime.fromtimestamp(said["created"], UTC),
    )
