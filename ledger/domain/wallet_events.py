"""What happens between a wallet and the payment service: stream wallet-<account_id>.

Money itself moves on the account's own stream; what is here says what was asked of the payment
service and what it said. Its ids (of payments, cards, refunds, disputes) are its own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, PaymentId, RefundId, UserId
from ledger.domain.money import Money

Way = Literal["checkout", "saved", "automatic"]
"""checkout: on the payment service's page. saved: with a card it keeps, because somebody asked.
automatic: with such a card, because the wallet's rule said so."""


class PaymentRequested(Event, name="ledger.payment-requested"):
    """A top-up was asked for. Nothing is paid yet. method: the saved card; empty for a page."""

    account_id: AccountId
    payment_id: PaymentId
    money: Money
    way: Way
    method: str
    asked_by: UserId | None
    at: datetime


class PayerKnown(Event, name="ledger.payer-known"):
    """The payment service knows the wallet's payer by this id."""

    account_id: AccountId
    payer: str
    at: datetime


class PaymentOpened(Event, name="ledger.payment-opened"):
    """The payment service has taken a request on. url: where the payer pays; empty: nowhere."""

    account_id: AccountId
    payment_id: PaymentId
    reference: str
    url: str
    at: datetime


class PaymentSucceeded(Event, name="ledger.payment-succeeded"):
    """The payment service confirmed that a payment came in. intent: its id there."""

    account_id: AccountId
    payment_id: PaymentId
    intent: str
    money: Money
    at: datetime


class PaymentFailed(Event, name="ledger.payment-failed"):
    """A payment did not come about. declined: the card's issuer said no; else it ran out."""

    account_id: AccountId
    payment_id: PaymentId
    reason: str
    declined: bool
    at: datetime


class MethodSaved(Event, name="ledger.payment-method-saved"):
    """The payment service keeps a card for this wallet. label: as people know it."""

    account_id: AccountId
    method: str
    label: str
    at: datetime


class MethodRemovalAsked(Event, name="ledger.payment-method-removal-asked"):
    """Somebody asked that a card be kept no longer. It is not used from here on."""

    account_id: AccountId
    method: str
    asked_by: UserId | None
    at: datetime


class MethodRemoved(Event, name="ledger.payment-method-removed"):
    """The payment service keeps a card no longer."""

    account_id: AccountId
    method: str
    at: datetime


class AutomaticTopUpSet(Event, name="ledger.automatic-top-up-set"):
    """The wallet tops itself up from now on, or by other terms.

    below_nanos: when so little is available. amount_nanos: by so much. most_per_day_nanos: not
    more than that on a day (UTC).
    """

    account_id: AccountId
    below_nanos: int
    amount_nanos: int
    most_per_day_nanos: int
    method: str
    set_by: UserId | None
    at: datetime


class AutomaticTopUpEnded(Event, name="ledger.automatic-top-up-ended"):
    """The wallet does not top itself up any more. reason: empty where somebody wanted it so."""

    account_id: AccountId
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class RefundPart:
    """What goes back to one payment. number: from 0, within the refund."""

    number: int
    intent: str
    money: Money


class RefundAsked(Event, name="ledger.refund-asked"):
    """Somebody asked to have unused money back. It is set aside until that is decided."""

    account_id: AccountId
    refund_id: RefundId
    money: Money
    reason: str
    asked_by: UserId
    at: datetime


class RefundApproved(Event, name="ledger.refund-approved"):
    """Somebody else approved a refund. parts: to which payments it goes back, newest first."""

    account_id: AccountId
    refund_id: RefundId
    approved_by: UserId
    parts: tuple[RefundPart, ...]
    at: datetime


class RefundDeclined(Event, name="ledger.refund-declined"):
    """A refund was declined, or taken back by who had asked; its money is available again."""

    account_id: AccountId
    refund_id: RefundId
    declined_by: UserId
    at: datetime


class RefundPartPaid(Event, name="ledger.refund-part-paid"):
    """The payment service paid a part of a refund. reference: its id there."""

    account_id: AccountId
    refund_id: RefundId
    number: int
    reference: str
    at: datetime


class RefundPartFailed(Event, name="ledger.refund-part-failed"):
    """A part of a refund did not go out, or came back; its money is available again."""

    account_id: AccountId
    refund_id: RefundId
    number: int
    reason: str
    at: datetime


class PaymentDisputed(Event, name="ledger.payment-disputed"):
    """A payer's bank took a payment back. dispute: its id at the payment service."""

    account_id: AccountId
    dispute: str
    intent: str
    money: Money
    reason: str
    at: datetime


class PaymentDisputeClosed(Event, name="ledger.payment-dispute-closed"):
    """The bank decided. won: the money is ours again."""

    account_id: AccountId
    dispute: str
    won: bool
    at: datetime


WalletEvent = (
    PaymentRequested
    | PayerKnown
    | PaymentOpened
    | PaymentSucceeded
    | PaymentFailed
    | MethodSaved
    | MethodRemovalAsked
    | MethodRemoved
    | AutomaticTopUpSet
    | AutomaticTopUpEnded
    | RefundAsked
    | RefundApproved
    | RefundDeclined
    | RefundPartPaid
    | RefundPartFailed
    | PaymentDisputed
    | PaymentDisputeClosed
)
