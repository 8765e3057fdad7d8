"""When the market was up, from the beats of its processes: `metering.loops.beat` notes them.

Three kinds of process must be at work for others to be able to act: the web, which agents and
people call, the clock, which asks hosts to start and takes in what ended, and the one that writes
the rows from which agents are told.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ledger.domain.ids import HostId
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from marketplace.domain.leases.lease import Contacts, Heard
from metering.models import AgentContact, Beat, OutageRow

WEB, CLOCK, ROWS = "web", "clock", "rows"
OUTAGES_MAX = 1_000
_BEFORE = datetime(1970, 1, 1, tzinfo=UTC)


def uptime(*, since: datetime) -> Uptime:
    """Return when the market was up after `since`: always, as long as nothing else is known."""
    rows = OutageRow.objects.filter(ends_at__gt=since).order_by("starts_at", "pk")
    outages: list[Window] = []
    for starts_at, ends_at in rows.values_list("starts_at", "ends_at")[:OUTAGES_MAX]:
        if outages and starts_at <= outages[-1].ends_at:
            last = outages.pop()
            starts_at, ends_at = last.starts_at, max(ends_at, last.ends_at)
        outages.append(Window(starts_at, ends_at))
    return Uptime(tuple(outages), min(Beat.objects.values_list("at", flat=True), default=None))


def contacts() -> Contacts:
    """Return of every host since when, without a long pause, and until when it was heard."""
    rows = AgentContact.objects.values_list("host_id", "heard_since", "last_seen_at")
    return {HostId(host): Heard(since or _BEFORE, until) for host, since, until in rows}
