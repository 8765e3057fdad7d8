"""A wallet at the payment service: what was asked of it, what came in, went back, is disputed.

What is in the wallet the account says; the two are written together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, assert_never

from ledger.domain.ids import PaymentId, RefundId
from ledger.domain.money import Money
from ledger.domain.wallet_events import (
    AutomaticTopUpEnded,
    AutomaticTopUpSet,
    MethodRemovalAsked,
    MethodRemoved,
    MethodSaved,
    PayerKnown,
    PaymentDisputeClosed,
    PaymentDisputed,
    PaymentFailed,
    PaymentOpened,
    PaymentRequested,
    PaymentSucceeded,
    RefundApproved,
    RefundAsked,
    RefundDeclined,
    RefundPart,
    RefundPartFailed,
    RefundPartPaid,
    WalletEvent,
)

PaymentState = Literal["asked", "open", "succeeded", "failed"]
RefundState = Literal["asked", "approved", "declined", "paid", "failed"]
PartState = Literal["approved", "paid", "failed"]
DisputeState = Literal["open", "won", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A top-up. asked: on which terms. ended_at: when it came in or failed."""

    asked: PaymentRequested
    state: PaymentState = "asked"
    declined: bool = False
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came in by one payment. gone: sent back, on its way back, or taken by a bank."""

    payment_id: PaymentId
    money: Money
    gone: Money
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """A refund. parts: by number, with how each stands; none before it is approved."""

    asked: RefundAsked
    state: RefundState = "asked"
    parts: Mapping[int, tuple[RefundPart, PartState]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """A chargeback."""

    opened: PaymentDisputed
    state: DisputeState = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wallet:
    """One wallet as the payment service and we know it. methods: saved cards that may be used."""

    STREAM: ClassVar[str] = "wallet"

    payer: str = ""
    payments: Mapping[PaymentId, Payment] = field(default_factory=dict)
    received: Mapping[str, Received] = field(default_factory=dict)
    """By the payment service's id, in the order in which it came."""
    methods: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    automatic: AutomaticTopUpSet | None = None
    refunds: Mapping[RefundId, Refund] = field(default_factory=dict)
    disputes: Mapping[str, Dispute] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: Wallet | None, event: WalletEvent, /) -> Wallet:
        """Return the wallet after `event`."""
        state = state or Wallet()
        match event:
            case PayerKnown():
                return replace(state, payer=event.payer)
            case PaymentRequested():
                return state._with_payment(event.payment_id, Payment(asked=event))
            case PaymentOpened() | PaymentFailed():
                return state._after_payment(event)
            case PaymentSucceeded():
                return state._after_success(event)
            case MethodSaved() | MethodRemovalAsked() | MethodRemoved():
                return state._after_method(event)
            case AutomaticTopUpSet():
                return replace(state, automatic=event)
            case AutomaticTopUpEnded():
                return replace(state, automatic=None)
            case RefundAsked():
                return state._with_refund(event.refund_id, Refund(asked=event))
            case RefundApproved() | RefundDeclined() | RefundPartPaid() | RefundPartFailed():
                return state._after_refund(event)
            case PaymentDisputed():
                gone = state._gone(event.intent, event.money.nanos)
                return gone._with_dispute(event.dispute, Dispute(opened=event))
            case PaymentDisputeClosed():
                return state._after_dispute(event)
            case _:
                assert_never(event)

    def _with_payment(self, payment_id: PaymentId, payment: Payment) -> Wallet:
        return replace(self, payments={**self.payments, payment_id: payment})

    def _with_refund(self, refund_id: RefundId, refund: Refund) -> Wallet:
        return replace(self, refunds={**self.refunds, refund_id: refund})

    def _with_dispute(self, name: str, dispute: Dispute) -> Wallet:
        return replace(self, disputes={**self.disputes, name: dispute})

    def _gone(self, intent: str, nanos: int) -> Wallet:
        """Return it with so much more of what came in by a payment gone again."""
        before = self.received[intent]
        after = replace(before, gone=before.gone + Money(nanos, before.gone.currency))
        return replace(self, received={**self.received, intent: after})

    def _after_payment(self, event: PaymentOpened | PaymentFailed) -> Wallet:
        payment = self.payments[event.payment_id]
        if isinstance(event, PaymentOpened):
            return self._with_payment(event.payment_id, replace(payment, state="open"))
        ended = replace(payment, state="failed", declined=event.declined, ended_at=event.at)
        return self._with_payment(event.payment_id, ended)

    def _after_success(self, event: PaymentSucceeded) -> Wallet:
        payment = self.payments[event.payment_id]
        ended = replace(payment, state="succeeded", declined=False, ended_at=event.at)
        came = Received(
            payment_id=event.payment_id,
            money=event.money,
            gone=Money(0, event.money.currency),
            at=event.at,
        )
        received = {**self.received, event.intent: came}
        return replace(self._with_payment(event.payment_id, ended), received=received)

    def _after_method(self, event: MethodSaved | MethodRemovalAsked | MethodRemoved) -> Wallet:
        others = {name: label for name, label in self.methods.items() if name != event.method}
        match event:
            case MethodSaved():
                return replace(self, methods={**others, event.method: event.label})
            case MethodRemovalAsked():
                return replace(self, methods=others, leaving=self.leaving | {event.method})
            case MethodRemoved():
                return replace(self, methods=others, leaving=self.leaving - {event.method})

    def _after_refund(
        self, event: RefundApproved | RefundDeclined | RefundPartPaid | RefundPartFailed
    ) -> Wallet:
        refund = self.refunds[event.refund_id]
        match event:
            case RefundDeclined():
                return self._with_refund(event.refund_id, replace(refund, state="declined"))
            case RefundApproved():
                wallet = self
                for part in event.parts:
                    wallet = wallet._gone(part.intent, part.money.nanos)
                parts: dict[int, tuple[RefundPart, PartState]] = {
                    part.number: (part, "approved") for part in event.parts
                }
                approved = replace(refund, state="approved", parts=parts)
                return wallet._with_refund(event.refund_id, approved)
            case RefundPartPaid():
                return self._with_part(event.refund_id, event.number, "paid")
            case RefundPartFailed():
                part, _ = refund.parts[event.number]
                back = self._gone(part.intent, -part.money.nanos)
                return back._with_part(event.refund_id, event.number, "failed")

    def _with_part(self, refund_id: RefundId, number: int, state: PartState) -> Wallet:
        refund = self.refunds[refund_id]
        parts = {**refund.parts, number: (refund.parts[number][0], state)}
        states = {each for _, each in parts.values()}
        ended: RefundState = "approved"
        if "approved" not in states:
            ended = "failed" if states == {"failed"} else "paid"
        return self._with_refund(refund_id, replace(refund, state=ended, parts=parts))

    def _after_dispute(self, event: PaymentDisputeClosed) -> Wallet:
        dispute = self.disputes[event.dispute]
        closed = replace(dispute, state="won" if event.won else "lost")
        wallet = self._with_dispute(event.dispute, closed)
        if not event.won:
            return wallet
        return wallet._gone(dispute.opened.intent, -dispute.opened.money.nanos)
