"""What can be asked about use: of a lease, of an owner's hosts, of agents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, Sum

from ledger.access import Actor, visible
from ledger.domain.agreed_rates import RateSince, charge, rate_at, spans_by_rate
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from listings import queries as listings
from listings.domain.events import Gpu
from metering.domain.correcting import NOT_CHARGED
from metering.domain.health import CONDITIONS, GpuCondition, Standing, standing_of
from metering.domain.instants import instant_of, millis_down
from metering.domain.meters import MeterUnknown
from metering.domain.rollup import Rolled, Sampled, roll_up
from metering.models import (
    AgentContact,
    CorrectionRow,
    DayRow,
    GapRow,
    HealthEvent,
    HeatRow,
    IngestAlarm,
    Interval,
    MeterRow,
    UsageRow,
)

LIVE_MAX = 50_000


@dataclass(frozen=True, slots=True)
class UseSoFar:
    """What a lease has used up to now, of GPUs that the asker consumes or owns.

    rated_ms: granted GPU-time of closed windows, up to `rated_through`, and what was corrected of
    them since; corrected_ms: that part of it. live_ms: granted since,
    as far as samples have come. occupied_ms, busy_ms, energy_mj: of both; None as soon as a part is
    unknown.
    cost: of rated and live time at the lease's prices. charged: taken from the hold so far, for
    the whole lease.
    """

    rated_ms: int
    corrected_ms: int
    live_ms: int
    occupied_ms: int | None
    busy_ms: int | None
    gap_ms: int
    rated_through: datetime
    cost: Money
    charged: Money
    is_final: bool
    energy_mj: int | None = None

    @property
    def granted_ms(self) -> int:
        """Return all granted time so far."""
        return self.rated_ms + self.live_ms


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """An agent as its owner sees it; silent_seconds: since the server last heard it.

    standing: `returning` is heard again and has not proved it for long enough yet. gpus: those that
    are not healthy are leased to nobody for now. measures: by GPU, how its agent says that busy
    time is measured (`busy_by`) and whether energy is (`energy`); empty of agents of before.
    """

    host_id: UUID
    title: str
    hostname: str
    agent_version: str
    last_seen_at: datetime
    silent_seconds: int
    standing: Standing
    gpus: dict[str, GpuCondition]
    measures: dict[str, dict[str, Any]]


def usage_windows(actor: Actor, lease_id: UUID) -> QuerySet[UsageRow]:
    """Return the closed usage windows of a lease that `actor` may see, in order of time.

    Raises: MeterUnknown.
    """
    meter(actor, lease_id)
    return visible(actor, UsageRow).filter(lease_id=lease_id).order_by("starts_at", "key")


def gaps(actor: Actor, lease_id: UUID) -> QuerySet[GapRow]:
    """Return the spans of a lease without proof of use, in order of time.

    Raises: MeterUnknown.
    """
    meter(actor, lease_id)
    return visible(actor, GapRow).filter(lease_id=lease_id).order_by("starts_at", "key")


def corrections(actor: Actor, lease_id: UUID) -> QuerySet[CorrectionRow]:
    """Return what was proved of a lease after it was rated, in the order it was put on record.

    Raises: MeterUnknown.
    """
    meter(actor, lease_id)
    return visible(actor, CorrectionRow).filter(lease_id=lease_id).order_by("number", "key")


def meter(actor: Actor, lease_id: UUID) -> MeterRow:
    """Return the meter of a lease that `actor` may see.

    Raises: MeterUnknown.
    """
    row = visible(actor, MeterRow).filter(lease_id=lease_id).first()
    if row is None:
        raise MeterUnknown(lease_id=lease_id)
    return row


def use_so_far(actor: Actor, lease_id: UUID) -> UseSoFar:
    """Return what a lease has used and cost up to now, rated or not.

    Raises: MeterUnknown.
    """
    row = meter(actor, lease_id)
    rated = [_rolled(each) for each in usage_windows(actor, lease_id)]
    charged = corrections(actor, lease_id).exclude(reason__in=NOT_CHARGED)
    corrected = [_rolled(each) for each in charged]
    rated += corrected
    millis = Counter[Rate]()
    for rows in (usage_windows(actor, lease_id), charged):
        for starts_at, granted_ms in rows.values_list("starts_at", "granted_ms"):
            millis[_price_at(row, starts_at)] += granted_ms
    everything = actor.sees_all or actor.tenant_id == row.tenant_id
    hosts = [
        share["host_id"]
        for share in row.shares
        if everything or share["owner_id"] == str(actor.tenant_id)
    ]
    since = _live(row, hosts)
    live = [rolled for _, rolled in since]
    for price, rolled in since:
        millis[price] += rolled.granted_ms
    rated_ms, live_ms = (sum(each.granted_ms for each in part) for part in (rated, live))
    return UseSoFar(
        rated_ms=rated_ms,
        corrected_ms=sum(each.granted_ms for each in corrected),
        live_ms=live_ms,
        occupied_ms=_sum_known(each.occupied_ms for each in [*rated, *live]),
        busy_ms=_sum_known(each.busy_ms for each in [*rated, *live]),
        gap_ms=sum(each.gap_ms for each in rated),
        rated_through=instant_of(row.closed_through_ms),
        cost=charge(millis.items(), row.currency),
        charged=Money(row.captured_nanos, row.currency),
        is_final=row.state == "closed",
        energy_mj=_sum_known(each.energy_mj for each in [*rated, *live]),
    )


def _rolled(row: UsageRow | CorrectionRow) -> Rolled:
    gaps = ((0, row.gap_ms),)
    return Rolled(row.granted_ms, row.occupied_ms, row.busy_ms, gaps, row.energy_mj)


def days(
    actor: Actor, *, since: date | None = None, lease_id: UUID | None = None
) -> QuerySet[DayRow]:
    """Return what GPUs did by UTC day, of leases and of hosts of the actor, in order of time."""
    rows = visible(actor, DayRow).order_by("day", "key")
    if since is not None:
        rows = rows.filter(day__gte=since)
    return rows if lease_id is None else rows.filter(lease_id=lease_id)


def heat(actor: Actor, *, since: datetime, until: datetime) -> QuerySet[HeatRow]:
    """Return what the actor's hosts did in each hour of [since, until), by host and hour."""
    rows = visible(actor, HeatRow).filter(hour__gte=since, hour__lt=until)
    return rows.order_by("host_id", "hour")


def granted_millis(actor: Actor, *, since: datetime, until: datetime) -> int:
    """Return for how long GPUs of the actor's organisation were leased in [since, until).

    In GPU-milliseconds, to others and to itself; whole hours only are known.
    """
    rows = heat(actor, since=since, until=until).filter(owner_id=actor.tenant_id)
    return rows.aggregate(total=Sum("granted_ms"))["total"] or 0


def agents(actor: Actor, *, now: datetime, poll_seconds: int) -> list[AgentSeen]:
    """Return the agents of the actor's hosts, the longest silent first.

    Not those of hosts that were retired: they may be silent.
    """
    hosts = {row.host_id: row for row in listings.hosts(actor)}
    found = []
    for contact in visible(actor, AgentContact).order_by("last_seen_at", "host_id"):
        host = hosts.get(contact.host_id)
        if host is not None and host.state == "retired":
            continue
        standing = standing_of(contact.last_seen_at, now=now, poll_seconds=poll_seconds)
        is_withheld = host is not None and host.silent_since is not None
        found.append(
            AgentSeen(
                host_id=contact.host_id,
                title=host.title if host else contact.hostname,
                hostname=contact.hostname,
                agent_version=contact.agent_version,
                last_seen_at=contact.last_seen_at,
                silent_seconds=max(0, int((now - contact.last_seen_at).total_seconds())),
                standing="returning" if is_withheld and standing == "healthy" else standing,
                gpus={} if host is None else _conditions(listings.gpus_of_row(host), host.unfit),
                measures=contact.measures,
            )
        )
    return found


def measures_of(actor: Actor, host_id: UUID) -> dict[str, dict[str, Any]]:
    """Return by GPU of a host how its agent says that it is measured, as `AgentSeen` has it."""
    contact = visible(actor, AgentContact).filter(host_id=host_id).first()
    return {} if contact is None else contact.measures


def said_of_gpus(actor: Actor, host_id: UUID) -> QuerySet[HealthEvent]:
    """Return what a host's agent said of its GPUs, newest first."""
    rows = visible(actor, HealthEvent).filter(host_id=host_id)
    return rows.order_by("-received_at", "-seq")


def _conditions(
    gpus: Iterable[Gpu], unfit: Mapping[str, Mapping[str, str]]
) -> dict[str, GpuCondition]:
    """Return the condition of each GPU that a host has, or misses."""
    found: dict[str, GpuCondition] = {gpu.uuid: "healthy" for gpu in gpus}
    return found | {uuid: CONDITIONS[said["reason"]] for uuid, said in unfit.items()}


def alarms(actor: Actor) -> QuerySet[IngestAlarm]:
    """Return what agents sent that should never be, newest first."""
    return visible(actor, IngestAlarm).order_by("-at", "-id")


def _price_at(row: MeterRow, moment: datetime) -> Rate:
    return rate_at(Rate(row.price_nanos_per_gpu_hour, row.currency), _later_prices(row), moment)


def _later_prices(row: MeterRow) -> list[RateSince]:
    return [
        RateSince(instant_of(each["since_ms"]), Rate(each["nanos"], row.currency))
        for each in row.later_prices
    ]


def _live(row: MeterRow, hosts: list[str]) -> list[tuple[Rate, Rolled]]:
    """Add up what came after the last closed window, one result for each GPU and price."""
    samples: dict[tuple[UUID, str], list[Sampled]] = defaultdict(list)
    rows = Interval.objects.filter(
        Q(host_id__in=hosts), lease_id=row.lease_id, end_ms__gt=row.closed_through_ms
    ).order_by("end_ms")
    for each in rows[:LIVE_MAX]:
        samples[each.host_id, each.gpu_uuid].append(
            Sampled(
                each.start_ms,
                each.end_ms,
                each.late_ms,
                each.occupied_ms,
                each.busy_ms,
                each.energy_mj,
            )
        )
    until_ms = row.ends_ms if row.over_ms is None else min(row.ends_ms, row.over_ms)
    if until_ms <= row.closed_through_ms:
        return []
    window = Window(instant_of(row.closed_through_ms), instant_of(until_ms))
    first = Rate(row.price_nanos_per_gpu_hour, row.currency)
    return [
        (price, roll_up(each, window=(millis_down(part.starts_at), millis_down(part.ends_at))))
        for price, part in spans_by_rate(first, _later_prices(row), window)
        for each in samples.values()
    ]


def _sum_known(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
