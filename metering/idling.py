"""Idle leases: rules are set, leases are looked at, warned of, kept, and released."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import structlog

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.turns import each_alone, turns_of
from marketplace.commands.leases import release_idle_lease
from marketplace.domain.leases.actions import LeaseOver
from marketplace.queries.idle import RunningLease
from metering.domain.idle import IdleRule, IdleWatch, Quiet, set_rule
from metering.domain.idle_events import (
    IdleEvent,
    IdleLeaseReleased,
    IdleRuleSet,
    IdleTerms,
    IdleWarned,
    IdleWarningLifted,
    RuleOf,
)
from metering.queries.idle import quiet_of_lease, terms_of_lease, watched_leases

LEASES_MAX = 500
WATCHER = Meta(actor="loop:idle-leases")

log = structlog.get_logger()


class IdleLeaseGone(LeaseOver):
    """That lease is over, or was given back since it was idle: there is nothing to keep."""


def set_idle_rule(
    store: EventStore,
    *,
    rule_id: UUID,
    of: RuleOf,
    tenant_id: TenantId,
    terms: IdleTerms | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Set from when on idle leases of a bid or tenant are released; None: never.

    rule_id: of the bid or tenant. That it is the caller's, the caller checks.
    Raises: IdleTermsOutOfRange.
    """

    def decide(rule: IdleRule | None) -> Sequence[IdleRuleSet]:
        return set_rule(rule, rule_id=rule_id, of=of, tenant_id=tenant_id, terms=terms, now=now)

    return record(store, IdleRule, rule_id, decide, by=by)


def keep_idle_lease(
    store: EventStore, *, lease_id: LeaseId, tenant_id: TenantId, by: Meta, now: datetime
) -> Position:
    """Let a lease's idle time count anew from now on.

    Raises: IdleLeaseGone.
    """

    def decide(watch: IdleWatch | None) -> Sequence[IdleEvent]:
        kept = (watch or IdleWatch()).keep(lease_id=lease_id, tenant_id=tenant_id, now=now)
        if not kept:
            raise IdleLeaseGone(lease_id=lease_id)
        return kept

    return record(store, IdleWatch, lease_id, decide, by=by)


def watch_idle_leases(store: EventStore, *, now: datetime) -> int:
    """Look at every lease that has a rule; return how many were warned of or released."""
    found: dict[UUID, RunningLease] = {}

    def page(after: tuple[UUID] | None, limit: int) -> list[tuple[UUID]]:
        rows = watched_leases(after, limit)
        found.update({row.lease_id: row for row in rows})
        return [(row.lease_id,) for row in rows]

    due = turns_of(store, "idle").take(page, LEASES_MAX)
    return each_alone(
        [found[key] for (key,) in due],
        lambda row: _look(store, row, now),
        event="idle.stuck",
        told=lambda row: {"lease": str(row.lease_id)},
    )


def _look(store: EventStore, row: RunningLease, now: datetime) -> int:
    lease_id, tenant_id = LeaseId(row.lease_id), TenantId(row.tenant_id)
    watch = load(store, IdleWatch, lease_id) or IdleWatch()
    if watch.released is not None:
        # This process, or another, ended between the two.
        _release(store, lease_id, now)
        return 1
    terms = terms_of_lease(row)
    quiet = quiet_of_lease(row, terms, kept_at=watch.kept_at, now=now)
    found: list[IdleEvent] = []

    def decide(state: IdleWatch | None) -> Sequence[IdleEvent]:
        found[:] = []
        if state is not None and state.kept_at != watch.kept_at:
            return []  # kept meanwhile: what was read does not count
        found[:] = (state or IdleWatch()).look(
            quiet, terms, lease_id=lease_id, tenant_id=tenant_id, now=now
        )
        return found

    record(store, IdleWatch, lease_id, decide, by=WATCHER)
    for event in found:
        _tell(event, quiet)
        if isinstance(event, IdleLeaseReleased):
            _release(store, lease_id, now)
    return len(found)


def _release(store: EventStore, lease_id: LeaseId, now: datetime) -> None:
    try:
        release_idle_lease(store, lease_id=lease_id, by=WATCHER, now=now)
    except Refusal as refusal:
        log.warning("idle.not-released", lease=str(lease_id), code=refusal.code)


def _tell(event: IdleEvent, quiet: Quiet) -> None:
    lease = str(event.lease_id)
    match event:
        case IdleWarned():
            log.info("idle.warned", lease=lease, release_at=event.release_at.isoformat())
        case IdleWarningLifted():
            log.info("idle.lifted", lease=lease, by=event.by)
        case IdleLeaseReleased():
            log.info("idle.released", lease=lease, idle_ms=quiet.length_ms())
