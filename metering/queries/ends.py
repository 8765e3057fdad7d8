"""What hosts have proved of the end of leased work: the books alone say only what should be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from ledger.access import Actor, visible
from listings import queries as listings
from metering.domain.instants import instant_of, millis_down
from metering.models import AgentContact, MeterRow, WorkReport

LOOKED_BACK = timedelta(days=2)
GRACE_MAX = timedelta(minutes=15)
"""Work of a lease that was ended early may have that long to end (the longest `grace_seconds`)."""
NAMED_MAX = 5
"""Said one by one."""
ROWS_MAX = 5_000


def unproved_ends(actor: Actor, *, now: datetime, tolerance: timedelta) -> list[str]:
    """Return sentences about leases that are over, and whose work no host has proved to be.

    Hosts that were retired may be silent. tolerance: between the end of a lease and that of its
    work.
    """
    since_ms, now_ms = millis_down(now - LOOKED_BACK), millis_down(now)
    rows = visible(actor, MeterRow).filter(ends_ms__gte=since_ms).order_by("ends_ms", "lease_id")
    over = [row for row in rows[:ROWS_MAX] if _due_ms(row, tolerance) < now_ms]
    reports: dict[tuple[UUID, UUID], list[WorkReport]] = {}
    for report in WorkReport.objects.filter(lease_id__in=[row.lease_id for row in over]):
        reports.setdefault((report.lease_id, report.host_id), []).append(report)
    retired = {row.host_id for row in listings.hosts(actor) if row.state == "retired"}
    contacts = {
        contact.host_id: contact
        for contact in visible(actor, AgentContact)
        if contact.host_id not in retired
    }
    found = []
    for row in over:
        for host_id in sorted({UUID(share["host_id"]) for share in row.shares}):
            told = reports.get((row.lease_id, host_id), [])
            found += list(_doubts(row, told, contacts.get(host_id), tolerance))
    return found


def _end_ms(row: MeterRow) -> int:
    return row.ends_ms if row.over_ms is None else min(row.ends_ms, row.over_ms)


def _due_ms(row: MeterRow, tolerance: timedelta) -> int:
    """Return by when the work must have ended: at the deadline, or a grace after an early end."""
    early = row.over_ms is not None and row.over_ms <= row.ends_ms
    allowed = tolerance + (GRACE_MAX if early else timedelta(0))
    return _end_ms(row) + allowed // timedelta(milliseconds=1)


def _doubts(
    row: MeterRow, told: list[WorkReport], contact: AgentContact | None, tolerance: timedelta
) -> Iterator[str]:
    if contact is None:
        return  # no agent ever came, so nothing was started; or its host is gone for good
    name = contact.hostname or str(contact.host_id)
    ended = [report for report in told if report.what != "started"]
    if ended:
        late_ms = max(millis_down(report.at) for report in ended) - _due_ms(row, tolerance)
        if late_ms > 0:
            past = (millis_down(ended[-1].at) - _end_ms(row)) // 1000
            yield f"lease {row.lease_id} on {name} ran {past} s past its end"
    elif told:
        yield f"lease {row.lease_id}: {name} has not told that its work ended{_heard(contact)}"
    elif contact.last_seen_at < instant_of(_end_ms(row)):
        yield f"lease {row.lease_id}: {name} was not heard since before its end{_heard(contact)}"


def _heard(contact: AgentContact) -> str:
    return f" (last heard {contact.last_seen_at:%Y-%m-%d %H:%M:%S} UTC)"
