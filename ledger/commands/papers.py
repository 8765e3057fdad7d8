"""What may be asked about statements: to issue one, and to note its file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.domain.closing import Periods
from ledger.domain.event import Event
from ledger.domain.ids import TenantId, UserId
from ledger.domain.paper_events import PaperKind
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Refusal
from ledger.domain.self_billing import SelfBilling
from ledger.domain.statements import StatementDraft, Statements
from ledger.eventstore.port import EventStore, Meta, Position, load, record

SERIES: dict[PaperKind, type[Statements] | type[SelfBilling]] = {
    "statement": Statements,
    "self-billed": SelfBilling,
}
"""What numbers papers of each kind, in a stream for each issuer."""


class MonthNotClosed(Refusal):
    """A statement is of a closed month: until then its figures may change."""


def issue_statement(
    store: EventStore,
    draft: StatementDraft,
    *,
    issuer_id: TenantId = PLATFORM_ID,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Issue the statement of a closed month of an account.

    Returns: the position at which it is issued.
    Raises: MonthNotClosed, and what `Statements.issue` raises.
    """
    periods = load(store, Periods, PLATFORM_ID) or Periods()
    if periods.month(draft.period).state != "closed":
        raise MonthNotClosed(period=str(draft.period))

    def decide(known: Statements | None) -> Sequence[Event]:
        return (known or Statements()).issue(draft, issuer_id=issuer_id, by=user_id, now=now)

    return record(store, Statements, issuer_id, decide, by=by)


def note_paper_archived(
    store: EventStore,
    kind: PaperKind,
    issuer_id: UUID,
    paper_id: UUID,
    *,
    sha256: str,
    size: int,
    renderer: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record what the file of a paper is, once. Raises: PaperUnknown."""
    series = SERIES[kind]

    def decide(known: Statements | SelfBilling | None) -> Sequence[Event]:
        return (known or series()).archive(
            paper_id, sha256=sha256, size=size, renderer=renderer, now=now
        )

    return record(store, series, issuer_id, decide, by=by)


def note_paper_sent(
    store: EventStore,
    kind: PaperKind,
    issuer_id: UUID,
    paper_id: UUID,
    *,
    email: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record to which address a paper was sent, once. Raises: PaperUnknown."""
    series = SERIES[kind]

    def decide(known: Statements | SelfBilling | None) -> Sequence[Event]:
        return (known or series()).note_sent(paper_id, email=email, now=now)

    return record(store, series, issuer_id, decide, by=by)
