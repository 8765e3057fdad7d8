"""What may be asked about disputes: to contest a charge, to say something, and to decide."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.dispute_events import Contested, DisputeOpened, Outcome
from ledger.domain.disputes import (
    Charge,
    Dispute,
    DisputeUnknown,
    contest,
    give_back,
    left_of_contested,
    open_dispute,
    set_aside,
)
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, DisputeId, HoldId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID, Tenant
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together


def open_dispute_about(store: EventStore, charge: Charge, *, by: Meta, now: datetime) -> Position:
    """Contest a charge: what owners got of the contested amount is set aside in their earnings.

    Raises: NothingContested, DisputeTooLate, DisputeReasonMissing, DisputeOpenedOtherwise.
    """
    dispute_id = charge.terms.dispute_id
    before = load(store, Dispute, dispute_id)
    opened = contest(charge, now=now) if before is None else before.opened
    asked = replace(opened, used_millis=charge.terms.used_millis, reason=charge.terms.reason)

    def decide(dispute: Dispute | None) -> Sequence[Event]:
        return open_dispute(dispute, asked)

    parts = [
        _on_account(each.account_id, partial(_set_aside, each, dispute_id, now), by)
        for each in opened.contested
        if each.hold_id is not None and (before is None or before.decided is None)
    ]
    step = by.step(f"dispute:{asked.used_millis}:{asked.reason}")
    parts.append(Part(Dispute, dispute_id, decide, step))
    return record_together(store, parts, whole=True)[-1]


def decide_dispute(
    store: EventStore,
    dispute_id: DisputeId,
    outcome: Outcome,
    *,
    reason: str,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
    given_back: Money | None = None,
) -> Position:
    """Uphold a dispute, which gives back what is contested, all or a part, or dismiss it.

    What was set aside is free again. user_id: None where the time to decide is over. given_back:
    of a dispute that is upheld in part.
    Raises: DisputeUnknown, PartyCannotDecide, DisputeOver, PartNotContested, GivenBackBefore,
        DisputeReasonMissing.
    """
    known = load(store, Dispute, dispute_id)
    if known is None:
        raise DisputeUnknown(dispute_id=dispute_id)
    opened, parties = known.opened, _parties(store, known.opened)
    left = _left(store, opened)

    def decide(dispute: Dispute | None) -> Sequence[Event]:
        assert dispute is not None, "it was just read"
        return dispute.decide(
            outcome,
            reason=reason,
            by=user_id,
            parties=parties,
            now=now,
            given_back=given_back,
            left=left,
        )

    # It is decided first: whoever asks for the other outcome is refused before money moves.
    step = f"decide:{outcome}:{given_back or ''}".rstrip(":")
    parts = [Part(Dispute, dispute_id, decide, by.step(step))]
    parts += [
        _on_account(each.account_id, partial(_release, each.hold_id, now), by)
        for each in opened.contested
        if each.hold_id is not None
    ]
    if outcome != "dismissed":
        money = given_back or opened.money
        parts.append(_on_account(opened.account_id, partial(_give_back, opened, money, now), by))
    return record_together(store, parts, whole=True)[0]


def say_about_dispute(
    store: EventStore,
    dispute_id: DisputeId,
    text: str,
    *,
    user_id: UserId,
    tenant_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Put a statement about a dispute on record, while it is open.

    Raises: DisputeUnknown, DisputeOver, NothingSaid, SaidEnough.
    """

    def decide(dispute: Dispute | None) -> Sequence[Event]:
        if dispute is None:
            raise DisputeUnknown(dispute_id=dispute_id)
        return dispute.say(text, by=user_id, tenant_id=tenant_id, now=now)

    return record(store, Dispute, dispute_id, decide, by=by)


def _parties(store: EventStore, opened: DisputeOpened) -> Collection[UserId]:
    """Return the members of the organisations that are part of a dispute, but for the platform."""
    tenants = {opened.tenant_id, *(each.owner_id for each in opened.contested)} - {PLATFORM_ID}
    found = [load(store, Tenant, each) for each in tenants if each is not None]
    return {user_id for tenant in found if tenant is not None for user_id in tenant.members}


def _set_aside(
    contested: Contested, dispute_id: DisputeId, now: datetime, account: Account
) -> Sequence[Event]:
    return set_aside(account, contested, dispute_id=dispute_id, now=now)


def _left(store: EventStore, opened: DisputeOpened) -> Money:
    payer = load(store, Account, opened.account_id)
    if payer is None:
        raise AccountUnknown(account_id=opened.account_id)
    left = sum(each.nanos for each in left_of_contested(payer, opened))
    return Money(left, opened.money.currency)


def _release(hold_id: HoldId, now: datetime, account: Account) -> Sequence[Event]:
    return account.release_hold(hold_id=hold_id, now=now)


def _give_back(
    opened: DisputeOpened, money: Money, now: datetime, account: Account
) -> Sequence[Event]:
    return give_back(account, opened, money, platform_id=PLATFORM_ID, now=now)


def _on_account(account_id: AccountId, decide: partial[Sequence[Event]], by: Meta) -> Part:
    def on_open_account(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        return decide(account)

    return Part(Account, account_id, on_open_account, by.step(f"dispute:{account_id}"))
