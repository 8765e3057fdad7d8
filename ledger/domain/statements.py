"""Statements of months as documents of one issuer, and the numbers they get.

One stream decides all numbers, as it does for invoices: a number is there with its statement or not
at all. A month that was opened again and closed with other figures is stated anew, under a number
of its own that names the one before.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain.ids import AccountId, SubscriberId, TenantId, UserId
from ledger.domain.invoice_events import PartyDetails
from ledger.domain.paper_events import (
    PaperArchived,
    PaperSent,
    StatementEvent,
    StatementIssued,
    StatementLine,
)
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal, Unknown

PREFIX = "STM"
TITLES = {
    "usage": "Use of GPUs",
    "funds": "Added",
    "compensation": "Compensation for reclaimed leases",
    "sla-credit": "Credits for missed promises",
    "use-credit": "Given back after disputes",
    "write-off": "Written off",
    "storage": "Storage of volumes",
    "rounding": "Rounding of invoices",
    "tax": "Tax on invoices",
    "credit": "Credit notes",
    "refund": "Paid back",
    "dispute": "Taken back by a bank",
    "reversal": "Moved back",
    "processing": "Fees for payments",
    "payout": "Paid out",
    "payout-back": "Payouts that came back",
    "owner-tax": "VAT on self-billed invoices",
}


class PaperUnknown(Unknown):
    """There is no such document."""


class StatementIssuedBefore(Refusal):
    """That month of this account was stated already, under `number`, with the same figures."""


class NothingToState(Refusal):
    """Nothing moved this account in that month, and nothing was on it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementDraft:
    """What a statement is to say."""

    account_id: AccountId
    account_kind: str
    account_title: str
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    issuer: PartyDetails
    party: PartyDetails
    period: Period
    currency: str
    opening_nanos: int
    lines: tuple[StatementLine, ...]
    held_nanos: int
    as_of: int


def title_of(kind: str) -> str:
    """Return what a kind of entry is called on a statement."""
    return TITLES.get(kind, kind.replace("-", " ").capitalize())


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """All statements of one issuer. `evolve` hands its mappings on: only the newest may be asked.

    numbers: the last one of each year. newest: by account and month. revisions: how often each was
    stated.
    """

    STREAM: ClassVar[str] = "statements"

    numbers: MutableMapping[str, int] = field(default_factory=dict)
    newest: MutableMapping[str, StatementIssued] = field(default_factory=dict)
    revisions: MutableMapping[str, int] = field(default_factory=dict)
    issued: MutableMapping[UUID, str] = field(default_factory=dict)
    archived: MutableMapping[UUID, str] = field(default_factory=dict)
    sent: MutableMapping[UUID, str] = field(default_factory=dict)

    def branch(self) -> Statements:
        """Return these so that they may go on without changing what was handed on."""
        return Statements(
            numbers=ChainMap({}, self.numbers),
            newest=ChainMap({}, self.newest),
            revisions=ChainMap({}, self.revisions),
            issued=ChainMap({}, self.issued),
            archived=ChainMap({}, self.archived),
            sent=ChainMap({}, self.sent),
        )

    @classmethod
    def evolve(cls, state: Statements | None, event: StatementEvent, /) -> Statements:
        """Return the statements after `event`."""
        state = state or cls()
        match event:
            case StatementIssued():
                series, _, last = event.number.rpartition("-")
                key = _key(event.account_id, event.period)
                state.numbers[series] = int(last)
                state.newest[key] = event
                state.revisions[key] = state.revisions.get(key, 0) + 1
                state.issued[event.statement_id] = event.number
            case PaperArchived():
                state.archived[event.paper_id] = event.sha256
            case PaperSent():
                state.sent[event.paper_id] = event.email
            case _:
                assert_never(event)
        return state

    def issue(
        self, draft: StatementDraft, *, issuer_id: TenantId, by: UserId | None, now: datetime
    ) -> list[StatementIssued]:
        """Decide what the statement of a month says, and number it.

        Raises: NothingToState, StatementIssuedBefore.
        """
        if not draft.lines and not draft.opening_nanos:
            raise NothingToState(account_id=draft.account_id, period=str(draft.period))
        key = _key(draft.account_id, str(draft.period))
        before = self.newest.get(key)
        if before is not None and (before.opening_nanos, before.lines) == (
            draft.opening_nanos,
            draft.lines,
        ):
            raise StatementIssuedBefore(number=before.number, paper_id=before.statement_id)
        series = f"{PREFIX}-{now.astimezone(UTC).year}"
        return [
            StatementIssued(
                issuer_id=issuer_id,
                statement_id=uuid5(
                    draft.account_id, f"statement:{draft.period}:{self.revisions.get(key, 0)}"
                ),
                number=f"{series}-{self.numbers.get(series, 0) + 1:04d}",
                account_id=draft.account_id,
                account_kind=draft.account_kind,
                account_title=draft.account_title,
                tenant_id=draft.tenant_id,
                subscriber_id=draft.subscriber_id,
                issuer=draft.issuer,
                party=draft.party,
                period=str(draft.period),
                currency=draft.currency,
                opening_nanos=draft.opening_nanos,
                lines=draft.lines,
                closing_nanos=draft.opening_nanos + sum(line.nanos for line in draft.lines),
                held_nanos=draft.held_nanos,
                as_of=draft.as_of,
                replaces=before.number if before else "",
                by_user=by,
                at=now,
            )
        ]

    def archive(
        self, paper_id: UUID, *, sha256: str, size: int, renderer: str, now: datetime
    ) -> list[PaperArchived]:
        """Note the file of a statement, once. Raises: PaperUnknown."""
        if paper_id in self.archived:
            return []
        if paper_id not in self.issued:
            raise PaperUnknown(paper_id=paper_id)
        return [
            PaperArchived(paper_id=paper_id, sha256=sha256, bytes=size, renderer=renderer, at=now)
        ]

    def note_sent(self, paper_id: UUID, *, email: str, now: datetime) -> list[PaperSent]:
        """Note to which address a statement was sent, once. Raises: PaperUnknown."""
        if paper_id in self.sent:
            return []
        if paper_id not in self.issued:
            raise PaperUnknown(paper_id=paper_id)
        return [PaperSent(paper_id=paper_id, email=email, at=now)]


def _key(account_id: AccountId, period: str) -> str:
    return f"{account_id}:{period}"
