"""Disputes about charged use: what is contested is set aside, and somebody who is no party decides.

Either way it ends with an entry or a release: upheld, each account that got a part gives it back;
dismissed, or not decided in time, what was metered stands and the money is free again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import uuid5

from ledger.domain import journal
from ledger.domain.accounts import Account
from ledger.domain.dispute_events import (
    Contested,
    DisputeDecided,
    DisputeEvent,
    DisputeOpened,
    Outcome,
)
from ledger.domain.events import CompensationPaid, HoldPlaced
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId, DisputeId, EntryId, HoldId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown

CONTESTED_WITHIN = timedelta(days=60)
"""So long after a usage window ended it may be contested."""
DECIDED_WITHIN = timedelta(days=14)


class DisputeUnknown(Unknown):
    """There is no such dispute, or it is none of yours."""


class ChargeUnknown(Unknown):
    """There is no such charge on an account of yours.

    The charges of a lease are on the statement of the account that pays for it.
    """


class DisputeTooLate(Refusal):
    """A charge can be contested for 60 days after its use ended."""


class NothingContested(Invalid):
    """What was used is a whole number of GPU-milliseconds, from zero to less than was charged."""


class DisputeReasonMissing(Invalid):
    """Say why, in up to 200 characters, for those who decide and for those who read it later."""


class DisputeOpenedOtherwise(Refusal):
    """This charge is contested already, on other terms."""


class DisputeOver(Refusal):
    """This dispute was decided otherwise already."""


class PartyCannotDecide(Forbidden):
    """Nobody decides a dispute who opened it, or who belongs to an organisation that is part of it.

    Somebody else of the platform's finance people has to.
    """


@dataclass(frozen=True, slots=True)
class Charge:
    """A charged usage window. parts: by account that got something of it, with its owner."""

    terms: DisputeOpened
    charged: Money
    parts: tuple[tuple[AccountId, TenantId | None, int], ...]


def dispute_of(entry_id: EntryId) -> DisputeId:
    """Return the id of the dispute about a charge: there is one."""
    return DisputeId(uuid5(entry_id, "dispute"))


def contest(charge: Charge, *, now: datetime) -> DisputeOpened:
    """Return what a dispute about a charge contests, from whom, and until when it is decided.

    The contested amount is what the contested time is of the charged one, rounded down; each
    account's part of it is in proportion to what it got.

    Raises: NothingContested, DisputeTooLate, DisputeReasonMissing, TextUnreadable.
    """
    terms, charged = charge.terms, charge.charged
    if not 0 <= terms.used_millis < terms.charged_millis:
        raise NothingContested(charged_millis=terms.charged_millis)
    if now > terms.window.ends_at + CONTESTED_WITHIN:
        raise DisputeTooLate()
    _need_reason(terms.reason)
    less = terms.charged_millis - terms.used_millis
    nanos = charged.nanos * less // terms.charged_millis
    if not nanos:
        raise NothingContested(charged_millis=terms.charged_millis)
    split = journal.split(nanos, [got for _, _, got in charge.parts])
    contested = tuple(
        Contested(
            account_id=account_id,
            owner_id=owner_id,
            hold_id=None
            if owner_id is None
            else HoldId(uuid5(terms.dispute_id, f"hold:{account_id}")),
            money=Money(part, charged.currency),
        )
        for (account_id, owner_id, _), part in zip(charge.parts, split, strict=True)
        if part
    )
    return replace(
        terms,
        money=Money(nanos, charged.currency),
        contested=contested,
        decide_by=now + DECIDED_WITHIN,
        at=now,
    )


@dataclass(frozen=True, slots=True)
class Dispute:
    """A dispute as it stands. decided: None while it is open."""

    STREAM: ClassVar[str] = "dispute"

    opened: DisputeOpened
    decided: DisputeDecided | None = None

    @classmethod
    def evolve(cls, state: Dispute | None, event: DisputeEvent, /) -> Dispute:
        """Return the dispute after `event`."""
        if isinstance(event, DisputeOpened):
            return cls(opened=event)
        assert state is not None
        return replace(state, decided=event)

    def decide(
        self,
        outcome: Outcome,
        *,
        reason: str,
        by: UserId | None,
        parties: Collection[UserId],
        now: datetime,
    ) -> list[DisputeDecided]:
        """Decide what becomes of it. parties: members of the organisations that are part of it.

        by: None where the clock decides. Again on the same terms is nothing.
        Raises: PartyCannotDecide, DisputeOver, DisputeReasonMissing, TextUnreadable.
        """
        if by is not None and (by == self.opened.opened_by or by in parties):
            raise PartyCannotDecide()
        if self.decided is not None:
            if self.decided.outcome != outcome:
                raise DisputeOver(outcome=self.decided.outcome)
            return []
        _need_reason(reason)
        return [
            DisputeDecided(
                dispute_id=self.opened.dispute_id,
                outcome=outcome,
                reason=reason,
                decided_by=by,
                at=now,
            )
        ]


def open_dispute(dispute: Dispute | None, opened: DisputeOpened) -> list[DisputeOpened]:
    """Decide whether a charge becomes contested: once.

    Raises: DisputeOpenedOtherwise.
    """
    if dispute is None:
        return [opened]
    before = dispute.opened
    if (before.used_millis, before.reason) != (opened.used_millis, opened.reason):
        raise DisputeOpenedOtherwise(dispute_id=before.dispute_id)
    return []


def set_aside(
    earnings: Account, contested: Contested, *, dispute_id: DisputeId, now: datetime
) -> list[HoldPlaced]:
    """Decide that earnings are set aside while they are contested: no payout takes them.

    They may fall below zero by it, where they were paid out before.
    """
    assert contested.hold_id is not None, "fees are not paid out"
    if contested.hold_id in earnings.holds:
        return []
    return [
        HoldPlaced(
            account_id=contested.account_id,
            hold_id=contested.hold_id,
            money=contested.money,
            purpose=f"dispute:{dispute_id}",
            at=now,
        )
    ]


def give_back(
    payer: Account, opened: DisputeOpened, *, platform_id: TenantId, now: datetime
) -> list[CompensationPaid]:
    """Decide what who paid gets back from each account that got a part, once."""
    entries = [
        CompensationPaid(
            account_id=opened.account_id,
            entry_id=EntryId(uuid5(opened.dispute_id, f"credit:{each.account_id}")),
            lease_id=opened.lease_id,
            owner_id=platform_id if each.owner_id is None else each.owner_id,
            money=each.money,
            postings=journal.transfer(
                source=each.account_id, target=opened.account_id, money=each.money
            ),
            at=now,
        )
        for each in opened.contested
    ]
    return [each for each in entries if each.entry_id not in payer.entries]


def _need_reason(reason: str) -> None:
    need_text(reason, length_max=TEXT_LENGTH_MAX)
    if not reason.strip():
        raise DisputeReasonMissing()
