"""Disputes about charged use: what is contested is set aside, and somebody who is no party decides.

Either way it ends with an entry or a release: upheld, each account that got a part gives it back;
dismissed, or not decided in time, what was metered stands and the money is free again. In part: so
much of it goes back as was decided.
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
    DisputeSaid,
    Outcome,
    UseCredited,
)
from ledger.domain.events import HoldPlaced, UsageCaptured
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId, DisputeId, EntryId, HoldId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown

CONTESTED_WITHIN = timedelta(days=60)
"""So long after a usage window ended it may be contested."""
DECIDED_WITHIN = timedelta(days=14)
SAID_LENGTH_MAX = 2_000
SAID_MAX = 100
"""Statements of one dispute, of all that are part of it."""


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


class PartNotContested(Invalid):
    """What goes back in part is more than nothing and less than all that is contested."""


class GivenBackBefore(Refusal):
    """Of this charge only so much is left: the rest went back before, for a missed promise.

    Give back at most `left`; upheld as a whole, what is left goes back.
    """


class NothingSaid(Invalid):
    """A statement has a text of up to 2,000 characters."""


class SaidEnough(Refusal):
    """A dispute has up to 100 statements."""


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
    said: int = 0
    decided: DisputeDecided | None = None

    @classmethod
    def evolve(cls, state: Dispute | None, event: DisputeEvent, /) -> Dispute:
        """Return the dispute after `event`."""
        if isinstance(event, DisputeOpened):
            return cls(opened=event)
        assert state is not None
        if isinstance(event, DisputeSaid):
            return replace(state, said=event.number)
        return replace(state, decided=event)

    def say(
        self, text: str, *, by: UserId, tenant_id: TenantId, now: datetime
    ) -> list[DisputeSaid]:
        """Decide that somebody says something about it, while it is open.

        Raises: DisputeOver, NothingSaid, SaidEnough, TextUnreadable.
        """
        if self.decided is not None:
            raise DisputeOver(outcome=self.decided.outcome)
        if not text.strip() or len(text) > SAID_LENGTH_MAX:
            raise NothingSaid()
        need_text(text, length_max=SAID_LENGTH_MAX)
        if self.said >= SAID_MAX:
            raise SaidEnough()
        return [
            DisputeSaid(
                dispute_id=self.opened.dispute_id,
                number=self.said + 1,
                tenant_id=tenant_id,
                said_by=by,
                text=text,
                at=now,
            )
        ]

    @property
    def given_back(self) -> Money:
        """Return how much of the contested amount goes back, as it was decided."""
        contested = self.opened.money
        if self.decided is None or self.decided.outcome == "dismissed":
            return Money(0, contested.currency)
        return self.decided.given_back or contested

    def decide(
        self,
        outcome: Outcome,
        *,
        reason: str,
        by: UserId | None,
        parties: Collection[UserId],
        now: datetime,
        given_back: Money | None = None,
        left: Money | None = None,
    ) -> list[DisputeDecided]:
        """Decide what becomes of it. parties: members of the organisations that are part of it.

        by: None where the clock decides. given_back: of what is contested, `in-part` and then only.
        left: what of it did not go back before; None: all. Upheld, no more than that goes back.
        Again on the same terms is nothing.
        Raises: PartyCannotDecide, DisputeOver, PartNotContested, GivenBackBefore,
            DisputeReasonMissing, TextUnreadable.
        """
        if by is not None and (by == self.opened.opened_by or by in parties):
            raise PartyCannotDecide()
        if self.decided is not None:
            same = given_back == (self.decided.given_back if outcome == "in-part" else None)
            if outcome != self.decided.outcome or not same:
                raise DisputeOver(outcome=self.decided.outcome)
            return []
        _need_reason(reason)
        contested = self.opened.money
        is_part = (
            given_back is not None
            and given_back.currency == contested.currency
            and 0 < given_back.nanos < contested.nanos
        )
        if is_part != (outcome == "in-part") or (given_back is not None and not is_part):
            raise PartNotContested(contested=str(contested))
        if outcome != "dismissed" and left is not None and left < contested:
            if given_back is not None and given_back > left:
                raise GivenBackBefore(left=left)
            given_back = left if given_back is None else given_back
        return [
            DisputeDecided(
                dispute_id=self.opened.dispute_id,
                outcome=outcome,
                reason=reason,
                decided_by=by,
                at=now,
                given_back=given_back,
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


def left_of_contested(payer: Account, opened: DisputeOpened) -> list[Money]:
    """Return what of each contested part may still go back: all, but for what went back before.

    An owner who credited a missed promise has given back a share of each charge of the lease.
    """
    parts = [each.money for each in opened.contested]
    charge = payer.entries.get(opened.entry_id)
    assert isinstance(charge, UsageCaptured), "what is contested was charged"
    hold = payer.holds[charge.hold_id]
    got = {line.account_id: line.nanos for line in charge.postings if line.nanos > 0}
    owners = {e.account_id: e.owner_id for e in opened.contested if e.owner_id is not None}
    left, by_account = hold.given_back.left_of_charge(charge.charged, got, owners)
    room = min(left, hold.given_back.left_of(hold.captured)).nanos
    found = dict.fromkeys(range(len(parts)), 0)
    # Owners first: what they credited for a promise has the platform's fee in it.
    for index in sorted(found, key=lambda i: opened.contested[i].owner_id is None):
        most = by_account.get(opened.contested[index].account_id, 0)
        found[index] = min(parts[index].nanos, most, room)
        room -= found[index]
    return [Money(found[index], part.currency) for index, part in enumerate(parts)]


def give_back(
    payer: Account, opened: DisputeOpened, money: Money, *, platform_id: TenantId, now: datetime
) -> list[UseCredited]:
    """Decide what who paid gets back from each account that got a part, once.

    money: all of it; each account's part is in proportion to what is left of what it answers for,
    and no more than that.
    """
    own, currency = opened.account_id, money.currency
    ids = [EntryId(uuid5(opened.dispute_id, f"credit:{e.account_id}")) for e in opened.contested]
    if any(each in payer.entries for each in ids):
        return []
    left = [each.nanos for each in left_of_contested(payer, opened)]
    if not sum(left):
        return []
    charge = payer.entries[opened.entry_id]
    assert isinstance(charge, UsageCaptured), "what is contested was charged"
    parts = journal.split(min(money.nanos, sum(left)), left)
    return [
        UseCredited(
            account_id=own,
            entry_id=entry_id,
            corrects=opened.entry_id,
            dispute_id=opened.dispute_id,
            lease_id=opened.lease_id,
            window=opened.window,
            owner_id=platform_id if each.owner_id is None else each.owner_id,
            money=Money(part, currency),
            postings=journal.transfer(
                source=each.account_id, target=own, money=Money(part, currency)
            ),
            at=now,
            hold_id=charge.hold_id,
        )
        for each, entry_id, part in zip(opened.contested, ids, parts, strict=True)
        if part
    ]


def _need_reason(reason: str) -> None:
    need_text(reason, length_max=TEXT_LENGTH_MAX)
    if not reason.strip():
        raise DisputeReasonMissing()
