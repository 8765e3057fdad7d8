"""What happens to papers beside invoices: statements of months, streams statements-<issuer>.

Owners' invoices that the platform issues for them are told of in `self_billing_events`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, SubscriberId, TenantId, UserId
from ledger.domain.invoice_events import PartyDetails

PaperKind = Literal["statement", "self-billed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """What one kind of entry did to an account in a month, to the nano-unit.

    gross_nanos, fee_nanos: of what an owner's GPUs earned, what consumers paid and the platform
    took of it; both zero elsewhere.
    """

    kind: str
    title: str
    gross_nanos: int = 0
    fee_nanos: int = 0
    nanos: int


class StatementIssued(Event, name="ledger.statement-issued"):
    """A closed month of an account was stated: opening and lines are its closing.

    account_kind: what the account counts. held_nanos: what was set aside of it when this was
    issued. as_of: entries up to that position are in it. replaces: the number of the statement of
    the month as it was before it was opened again.
    """

    issuer_id: TenantId
    statement_id: UUID
    number: str
    account_id: AccountId
    account_kind: str
    account_title: str
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    issuer: PartyDetails
    party: PartyDetails
    period: str
    currency: str
    opening_nanos: int
    lines: tuple[StatementLine, ...]
    closing_nanos: int
    held_nanos: int
    as_of: int
    replaces: str
    by_user: UserId | None
    at: datetime


class PaperArchived(Event, name="ledger.paper-archived"):
    """The file of a statement, or of an invoice for an owner, was written once and put away."""

    paper_id: UUID
    sha256: str
    bytes: int
    renderer: str
    at: datetime


class PaperSent(Event, name="ledger.paper-sent"):
    """The file of a statement, or of an invoice for an owner, was handed to the mail server."""

    paper_id: UUID
    email: str
    at: datetime


StatementEvent = StatementIssued | PaperArchived | PaperSent
