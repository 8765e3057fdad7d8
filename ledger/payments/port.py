"""What a payment service does for us. Amounts are whole minor units, such as cents.

Every call that changes something carries a key: asked again with the same key it does nothing and
answers as before. What the service keeps, it keeps with our own marks, so that we know it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from ledger.payments.connect_port import Connecting

NOTICE_SECONDS_MAX = 300
"""How old the signature of a notice may be: an older one may be a copy sent again."""


class PaymentsAway(Exception):
    """The service did not answer, or asked us to come again. It may have done what was asked."""


class PaymentsRefused(Exception):
    """The service refuses what was asked, and would again. code: its own word for why."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class CardDeclined(Exception):
    """The card's issuer said no, or wants the payer to be there."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class NoticeForged(Exception):
    """A notice is not signed by the service, was changed on its way, or is too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageWanted:
    """A page on which a payer pays. back, away: where the payer comes back to, paid or not."""

    payer: str
    minor: int
    currency: str
    title: str
    marks: Mapping[str, str]
    back: str
    away: str
    keep_card: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """A page as it stands. intent: the payment that was made on it; empty: none yet."""

    page: str
    url: str
    is_expired: bool
    intent: str
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentState:
    """A payment as it stands: `succeeded`, `failed` or `open`. minor: what came in."""

    intent: str
    state: str
    minor: int
    currency: str
    marks: Mapping[str, str]
    method: str = ""
    words: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundState:
    """A refund as it stands: `paid`, `failed` or `open`."""

    refund: str
    state: str
    intent: str
    minor: int
    marks: Mapping[str, str]
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeState:
    """A chargeback as it stands: `open`, `won`, `lost`; `inquiry`: no money moved."""

    dispute: str
    state: str
    intent: str
    minor: int
    currency: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodState:
    """A card that the service keeps. payer: for whom; empty: for nobody any more."""

    method: str
    payer: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BillWanted:
    """An invoice of ours that the service sends and collects.

    lines: what each is called and comes to, tax among them; their sum is `minor`. due_days: from
    when it is sent.
    """

    payer: str
    number: str
    lines: tuple[tuple[str, int], ...]
    minor: int
    currency: str
    due_days: int
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BillState:
    """An invoice as it stands there: `draft`, `open`, `paid`, `void`, `uncollectible`.

    payments: what the service itself took for it, by the payment's id; not what was paid in
    another way. left: what it still collects. url: where it is paid.
    """

    bill: str
    state: str
    minor: int
    left: int
    currency: str
    url: str
    payments: tuple[tuple[str, int], ...]
    marks: Mapping[str, str]
    trying: str = ""
    """The payment by which somebody tries to pay it; it may have failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One line of the account that we have at the service.

    minor: what it changed, before the fee; below zero: it went out. source: the id of the payment,
    refund, dispute … it is of.
    """

    movement: str
    kind: str
    minor: int
    fee_minor: int
    currency: str
    source: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Word from the service that something happened; what, it is asked itself."""

    notice: str
    kind: str
    about: str
    account: str = ""
    """The connected account it is about; empty: our own."""
    extra: Mapping[str, str] = field(default_factory=dict)


class Payments(Connecting, Protocol):
    """A payment service. `tests/contracts/payments` holds every one to this.

    Every method may raise PaymentsAway and PaymentsRefused.
    """

    is_test: bool
    """No real money moves."""

    def payer(self, title: str, *, marks: Mapping[str, str], key: str, email: str = "") -> str:
        """Make a payer and return its id. email: where its invoices are sent; empty: nowhere."""
        ...

    def send_bill(self, wanted: BillWanted, *, key: str) -> BillState:
        """Make an invoice, finalize and send it. Each step may be asked for again."""
        ...

    def bill(self, bill: str) -> BillState:
        """Return an invoice as it stands."""
        ...

    def bill_of(self, intent: str) -> str:
        """Return the invoice that a payment paid; empty: it paid none."""
        ...

    def lower_bill(self, bill: str, minor: int, *, words: str, key: str) -> None:
        """Say that so much less is to be paid of an open invoice: less than all that is left."""
        ...

    def settle_bill(self, bill: str, *, key: str) -> None:
        """Say that an invoice was paid in another way: it is collected no longer."""
        ...

    def give_bill_up(self, bill: str, *, key: str) -> None:
        """Say that nobody is expected to pay an invoice: it is collected no longer."""
        ...

    def open_page(self, wanted: PageWanted, *, key: str) -> PageState:
        """Make a page on which a payer pays."""
        ...

    def page(self, page: str) -> PageState:
        """Return a page as it stands."""
        ...

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
        """Take an amount from a card that is kept, with nobody there.

        Raises: CardDeclined.
        """
        ...

    def intent(self, intent: str) -> IntentState:
        """Return a payment as it stands."""
        ...

    def give_back(
        self, *, intent: str, minor: int, marks: Mapping[str, str], key: str
    ) -> RefundState:
        """Send a part of a payment back to its payer."""
        ...

    def refunds_of(self, intent: str) -> list[RefundState]:
        """Return what was sent back of a payment, newest first."""
        ...

    def refund(self, refund: str) -> RefundState:
        """Return a refund as it stands."""
        ...

    def dispute(self, dispute: str) -> DisputeState:
        """Return a chargeback as it stands."""
        ...

    def method(self, method: str) -> MethodState:
        """Return a card that is or was kept."""
        ...

    def forget_method(self, method: str, *, key: str) -> None:
        """Keep a card no longer; nothing where it is not kept."""
        ...

    def movements(self, since: datetime, until: datetime) -> Iterator[Movement]:
        """Yield the lines of our account at the service in a span, newest first."""
        ...

    def intent_of(self, source: str) -> str:
        """Return the payment that a charge, refund or dispute is of; empty: of none."""
        ...

    def notice(self, raw: bytes, signature: str) -> Notice:
        """Read a notice as it came over the network.

        Raises: NoticeForged.
        """
        ...
