"""How idle leases are: their rules, what was measured, and the sum that decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from marketplace.queries.idle import RunningLease, running_leases
from metering.domain.idle import Figures, Measured, Quiet, quiet_of, strictest
from metering.domain.idle_events import IdleTerms
from metering.domain.instants import instant_of, millis_down
from metering.models import IdleRow, IdleRuleRow, Interval, MeterRow

CHUNK = 200
READ_BACK_MAX = 20_000
"""Intervals of one GPU that are read at most: half a day, one every few seconds."""


@dataclass(frozen=True, slots=True)
class Idleness:
    """How a lease stands. ends_at: when it is released if it stays quiet; None: not warned yet."""

    terms: IdleTerms
    quiet: Quiet
    idle: timedelta
    measured_through: datetime | None
    ends_at: datetime | None


def rules_of(row: RunningLease) -> dict[str, IdleTerms | None]:
    """Return the rules of a lease, by whose they are: `bid`, `tenant`."""
    found = IdleRuleRow.objects.filter(pk__in=[row.bid_id, row.tenant_id])
    return {each.of: terms_in(each.terms) for each in found}


def rule_of(rule_id: UUID) -> IdleTerms | None:
    """Return the rule of a bid or tenant."""
    found = IdleRuleRow.objects.filter(pk=rule_id).first()
    return None if found is None else terms_in(found.terms)


def terms_in(said: dict[str, Any] | None) -> IdleTerms | None:
    """Read the terms that a row keeps."""
    return None if said is None else IdleTerms(**said)


def terms_of_lease(row: RunningLease) -> IdleTerms | None:
    """Return the rule that holds for a lease: the stricter of its bid's and its tenant's."""
    return strictest(list(rules_of(row).values()))


def watched_leases(after: tuple[UUID] | None, limit: int) -> list[RunningLease]:
    """Return active leases that have a rule, or a warning that may have to be lifted."""
    rules = IdleRuleRow.objects.exclude(terms=None).values("rule_id")
    told = IdleRow.objects.exclude(release_at=None, released_at=None).values("lease_id")
    return running_leases(after, limit, rules=rules, told=told)


def quiet_of_lease(
    row: RunningLease, terms: IdleTerms | None, *, kept_at: datetime | None, now: datetime
) -> Quiet:
    """Return since when a lease has been quiet; before its work began, nothing counts."""
    began = [each for each in (row.work_began_at, kept_at) if each is not None]
    meter = MeterRow.objects.filter(pk=row.lease_id).first()
    gpus: list[Iterator[Measured]] = []
    if meter is not None and row.work_began_at is not None and terms is not None:
        gpus = [
            _newest_first(row.lease_id, UUID(share["host_id"]), gpu_uuid)
            for share in meter.shares
            for gpu_uuid in share["gpu_uuids"]
        ]
    return quiet_of(
        gpus,
        terms or IdleTerms(after_seconds=0),
        now_ms=millis_down(now),
        not_before_ms=millis_down(max(began)) if began else 0,
    )


def idleness_of(row: RunningLease, *, now: datetime) -> Idleness | None:
    """Return how idle a lease is by its rule; None: it has none, or does not run."""
    terms = terms_of_lease(row)
    if terms is None or row.state != "active":
        return None
    told = IdleRow.objects.filter(pk=row.lease_id).first()
    kept_at = None if told is None else told.kept_at
    quiet = quiet_of_lease(row, terms, kept_at=kept_at, now=now)
    known = quiet.figures != Figures()
    return Idleness(
        terms=terms,
        quiet=quiet,
        idle=timedelta(milliseconds=quiet.length_ms()),
        measured_through=instant_of(quiet.through_ms) if known else None,
        ends_at=None if told is None else told.release_at,
    )


def _newest_first(lease_id: UUID, host_id: UUID, gpu_uuid: str) -> Iterator[Measured]:
    rows = Interval.objects.filter(lease_id=lease_id, host_id=host_id, gpu_uuid=gpu_uuid)
    found = rows.order_by("-end_ms").values_list(
        "start_ms", "end_ms", "received_at", "busy_ms", "cpu_ms", "io_bytes", "net_bytes"
    )[:READ_BACK_MAX]
    for start_ms, end_ms, received_at, busy_ms, cpu_ms, disk, network in found.iterator(CHUNK):
        yield Measured(
            start_ms=start_ms,
            end_ms=end_ms,
            received_ms=millis_down(received_at),
            busy_ms=busy_ms,
            cpu_ms=cpu_ms,
            disk_bytes=disk,
            network_bytes=network,
        )
