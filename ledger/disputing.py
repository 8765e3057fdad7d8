"""Disputes: who is told of them, and what becomes of those that nobody decides (decision 119)."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from uuid import UUID

from ledger.access import Actor
from ledger.commands.disputes import decide_dispute, open_dispute_about, say_about_dispute
from ledger.commands.notices import give_notice
from ledger.domain.dispute_events import Outcome
from ledger.domain.disputes import DECIDED_WITHIN, Dispute, DisputeOpenedOtherwise, dispute_of
from ledger.domain.ids import DisputeId, EntryId, UserId
from ledger.domain.money import Money
from ledger.domain.notices import To, to_platform
from ledger.domain.parties import TenantUnknown
from ledger.domain.refusal import Forbidden
from ledger.domain.rounding import in_words
from ledger.eventstore.port import EventStore, Meta, Position, load
from ledger.queries import disputes as queries
from ledger.turns import each_alone, turns_of

A_PASS = 200
BY_CLOCK = Meta(actor="loop:disputes")
NOT_DECIDED = (
    f"By rule: nobody decided within {DECIDED_WITHIN.days} days, so what was metered stands."
)
METERS = Meta(actor="loop:compared-meters")


class DisputesByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform may decide disputes."""


def contest(
    store: EventStore,
    actor: Actor,
    entry_id: UUID,
    *,
    used_millis: int,
    reason: str,
    by: Meta,
    now: datetime,
) -> tuple[DisputeId, Position]:
    """Contest a charge of one's own organisation.

    Raises: RoleMissing, PersonNeeded, ChargeUnknown, and what `open_dispute_about` raises.
    """
    actor.need("consumer", "finance", "operator")
    charge = queries.charge_to_contest(
        actor,
        entry_id,
        used_millis=used_millis,
        reason=reason,
        user_id=actor.need_person(),
        now=now,
    )
    position = open_dispute_about(store, charge, by=by, now=now)
    dispute_id = dispute_of(EntryId(entry_id))
    _tell(store, dispute_id, "opened", by=by, now=now)
    return dispute_id, position


def contest_by_meters(
    store: EventStore, entry_id: UUID, *, used_millis: int, reason: str, now: datetime
) -> bool:
    """Contest a charge since the meter of who paid differs from its owners'; tell if it is new.

    Where somebody contests it already, that dispute stands.
    Raises: ChargeUnknown, and what `open_dispute_about` raises.
    """
    charge = queries.charge_of(entry_id, used_millis=used_millis, reason=reason, now=now)
    dispute_id = dispute_of(EntryId(entry_id))
    before = load(store, Dispute, dispute_id)
    if before is not None and before.opened.opened_by is not None:
        return False
    with suppress(DisputeOpenedOtherwise):
        open_dispute_about(store, charge, by=METERS, now=now)
    # Also where it was there before: then something ended in between.
    _tell(store, dispute_id, "opened", by=METERS, now=now)
    return before is None


def say(
    store: EventStore, actor: Actor, dispute_id: UUID, text: str, *, by: Meta, now: datetime
) -> Position:
    """Say something about a dispute that the actor's organisation is part of, or decides.

    Raises: RoleMissing, PersonNeeded, DisputeUnknown, DisputeOver, NothingSaid, SaidEnough.
    """
    actor.need("consumer", "owner", "finance", "operator")
    row = queries.dispute(actor, dispute_id)
    return say_about_dispute(
        store,
        DisputeId(row.dispute_id),
        text,
        user_id=actor.need_person(),
        tenant_id=actor.tenant_id,
        by=by,
        now=now,
    )


def decide(
    store: EventStore,
    actor: Actor,
    dispute_id: UUID,
    outcome: Outcome,
    *,
    reason: str,
    by: Meta,
    now: datetime,
    given_back: Money | None = None,
) -> Position:
    """Decide a dispute, as somebody of the platform who is no party to it.

    Raises: DisputesByPlatformOnly, PersonNeeded, and what `decide_dispute` raises.
    """
    row = queries.dispute(actor, dispute_id)
    if not actor.has_platform_money:
        raise DisputesByPlatformOnly()
    user_id = actor.need_person()
    return _decide(store, row.dispute_id, outcome, reason, user_id, by=by, now=now, part=given_back)


def decide_overdue(store: EventStore, *, now: datetime) -> int:
    """Dismiss the disputes that nobody decided in time. Returns: how many that were."""

    def page(after: tuple[UUID] | None, limit: int) -> list[tuple[UUID]]:
        found = queries.overdue_disputes(now=now, after=after[0] if after else None, limit=limit)
        return [(each,) for each in found]

    keys = turns_of(store, "disputes").take(page, A_PASS)

    def dismiss(dispute_id: UUID) -> int:
        by = BY_CLOCK
        _decide(store, dispute_id, "dismissed", NOT_DECIDED, None, by=by, now=now)
        return 1

    return each_alone(
        [key for (key,) in keys],
        dismiss,
        event="dispute.not-decided",
        told=lambda dispute_id: {"dispute": str(dispute_id)},
    )


def _decide(
    store: EventStore,
    dispute_id: UUID,
    outcome: Outcome,
    reason: str,
    user_id: UserId | None,
    *,
    by: Meta,
    now: datetime,
    part: Money | None = None,
) -> Position:
    known = DisputeId(dispute_id)
    position = decide_dispute(
        store, known, outcome, reason=reason, user_id=user_id, by=by, now=now, given_back=part
    )
    _tell(store, known, outcome, by=by, now=now)
    return position


WORDS: dict[str, str] = {
    "opened": "A charge is contested",
    "upheld": "A dispute is upheld: what is contested goes back",
    "in-part": "A dispute is upheld in part",
    "dismissed": "A dispute is dismissed: the charge stands",
}


def _tell(store: EventStore, dispute_id: DisputeId, what: str, *, by: Meta, now: datetime) -> None:
    """Tell both sides and the platform, once for each step."""
    dispute = load(store, Dispute, dispute_id)
    assert dispute is not None, "it was just written"
    opened = dispute.opened
    about = (
        f"{in_words(opened.money)} for lease {opened.lease_id},"
        f" {opened.window.starts_at:%Y-%m-%d %H:%M} UTC"
    )
    if dispute.decided is None:
        last = (
            f"To be decided by {opened.decide_by:%Y-%m-%d %H:%M} UTC. Until then it is set aside."
        )
        body = f"{about} on: {opened.reason}\n\n{last}"
    else:
        last = f"Given back: {dispute.given_back}."
        body = f"{about} on: {dispute.decided.reason}\n\n{last}"
    owners = {each.owner_id for each in opened.contested if each.owner_id is not None}
    told = [To(tenant_id=each) for each in sorted({opened.tenant_id, *owners}, key=str)]
    for to in [*told, to_platform()]:
        with suppress(TenantUnknown):  # of accounts alone, as in a trial
            give_notice(
                store,
                to=to,
                topic="dispute",
                key=f"{dispute_id}:{what}",
                title=WORDS[what],
                body=body,
                link=f"/finance/disputes/{dispute_id}",
                by=by.step(f"notice:{dispute_id}:{what}:{to.tenant_id}"),
                now=now,
            )
