"""What can be asked about leases. Reads rows; the timeline reads the lease's own stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast, get_args
from uuid import UUID

from django.db.models import Q, QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import BidId, HostId, LeaseId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden, Invalid
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Recorded, load, stream_name
from ledger.turns import behind
from listings.queries import abilities_of
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.values import GpuRequest, VolumeMount
from marketplace.domain.leases.actions import Action, Sale, Standing, is_consumers, offered
from marketplace.domain.leases.attempts import Attempt, attempts_of
from marketplace.domain.leases.lease import Lease, LeaseUnknown
from marketplace.domain.leases.moves import taker_of
from marketplace.domain.leases.reclaim import quote
from marketplace.domain.leases.reclaim_schedule import Choice
from marketplace.domain.leases.state import State
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow, LeaseShareRow

FINAL = ("closed", "failed")
HOLD = ("tail", "-f", "/dev/null")
"""What runs for a lease without a command: nothing, until its end. The GPUs are held for it."""
LEASED_MAX = 5_000


class NotTheConsumer(Forbidden):
    """Only the consumer of a lease may end or extend it.

    An owner takes capacity back by a reclaim.
    """


class LeaseFilterUnreadable(Invalid):
    """Leases are narrowed by known states and by the id of a bid."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the agent of one host is to do for one lease.

    phase: `run` it; `warn`: run it, and tell the work that it will be stopped; `stop` it.
    """

    lease_id: LeaseId
    gpu_uuids: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    phase: str
    stop_at: datetime | None
    grace_seconds: int
    runtime: str
    command: tuple[str, ...]
    environment: dict[str, str]
    workload_kind: str
    tenant_id: UUID | None = None
    image: str = ""
    inputs: UUID | None = None
    outputs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    secret_variables: tuple[str, ...] = ()
    fetch: str = ""
    fetch_secret: str = ""
    volumes: tuple[VolumeMount, ...] = ()
    notice_seconds: int | None = None
    sandbox: str = ""


def leases(
    actor: Actor,
    *,
    states: Sequence[str] = (),
    host_id: UUID | None = None,
    bid_id: UUID | str | None = None,
) -> QuerySet[LeaseRow]:
    """Return the leases that `actor` consumes or owns, newest first.

    Raises: LeaseFilterUnreadable.
    """
    rows = visible(actor, LeaseRow).order_by("-granted_at", "lease_id")
    unknown = sorted(set(states) - set(get_args(State)))
    if unknown:
        raise LeaseFilterUnreadable(state=unknown, known=get_args(State))
    if states:
        rows = rows.filter(state__in=states)
    if host_id is not None:
        rows = rows.filter(host_ids__contains=[host_id])
    if bid_id is not None:
        try:
            rows = rows.filter(bid_id=UUID(str(bid_id)))
            if not actor.sees_all:  # an owner learns of no lease which bid it was granted to
                rows = rows.filter(tenant_id=actor.tenant_id)
        except ValueError:
            raise LeaseFilterUnreadable(bid_id=str(bid_id)[:40]) from None
    return rows


def sees_why(actor: Actor, row: LeaseRow) -> bool:
    """Tell if `actor` may see whose work a lease is for: its bid, unit and cost centre."""
    return actor.sees_all or row.tenant_id == actor.tenant_id


def lease(actor: Actor, lease_id: UUID) -> LeaseRow:
    """Return one lease that `actor` may see.

    Raises: LeaseUnknown.
    """
    row = visible(actor, LeaseRow).filter(lease_id=lease_id).first()
    if row is None:
        raise LeaseUnknown(lease_id=lease_id)
    return row


def consumed_lease(actor: Actor, lease_id: UUID) -> LeaseRow:
    """Return one lease that `actor` consumes; an owner may see it, but not end or extend it.

    Raises: LeaseUnknown, NotTheConsumer.
    """
    row = lease(actor, lease_id)
    if row.tenant_id != actor.tenant_id:
        raise NotTheConsumer(lease_id=lease_id)
    return row


def actions_of(
    actor: Actor, rows: Sequence[LeaseRow], *, now: datetime
) -> dict[UUID, tuple[Action, ...]]:
    """Return for each lease what `actor` may do with it at `now`, by the rule of the commands.

    A role or token that may not write is offered nothing.
    """
    as_consumer, as_owner = actor.may("leases:write"), actor.may("offers:write")
    notices = _notices(rows)
    return {
        row.lease_id: tuple(
            action
            for action in offered(
                _standing(row, notices[row.lease_id]), tenant_id=actor.tenant_id, now=now
            )
            if (as_consumer if is_consumers(action, row.tenant_id, actor.tenant_id) else as_owner)
        )
        for row in rows
    }


def _notices(rows: Iterable[LeaseRow]) -> dict[UUID, dict[TenantId, timedelta]]:
    """Return the least notice of each owner of each lease: by host, as it was agreed."""
    rows = list(rows)
    several = [row.lease_id for row in rows if len(row.owner_ids) > 1]
    owners: dict[tuple[UUID, str], UUID] = {}
    if several:
        shares = LeaseShareRow.objects.filter(lease_id__in=several)
        owners = {
            (lease_id, str(host_id)): owner_id
            for lease_id, host_id, owner_id in shares.values_list("lease_id", "host_id", "owner_id")
        }
    found: dict[UUID, dict[TenantId, timedelta]] = {}
    for row in rows:
        notices: dict[TenantId, timedelta] = defaultdict(timedelta)
        for share in row.reclaim_schedule:
            key = (row.lease_id, share["host_id"])
            owner_id = TenantId(owners.get(key, row.owner_ids[0]))
            least = timedelta(seconds=share["steps"][0]["notice_seconds"])
            notices[owner_id] = max(notices[owner_id], least)
        found[row.lease_id] = dict(notices)
    return found


def _standing(row: LeaseRow, notices: dict[TenantId, timedelta]) -> Standing:
    """Return how a lease stands by its row."""
    sale = "" if row.resale_state == "kept" else row.resale_state
    return Standing(
        lease_id=LeaseId(row.lease_id),
        consumer_id=TenantId(row.tenant_id),
        state=cast(State, row.state),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        stop_at=row.stop_at,
        is_started=row.work_began_at is not None,
        hosts=len(row.host_ids),
        notices=notices,
        is_bought=row.resold_lease_id is not None,
        is_rented=row.burst,
        sale=cast(Sale, sale),
        opens_at=None if row.resale is None else datetime.fromisoformat(row.resale["opens_at"]),
    )


def right_ends_at(row: LeaseRow) -> datetime:
    """Return when the right to the GPUs ends or ended, as far as is known.

    Nothing after it is charged, whenever the lease is closed.
    """
    ends_at = row.ends_at if row.stop_at is None else min(row.ends_at, row.stop_at)
    if row.state in ("ending", *FINAL):
        return min(ends_at, row.due_at)  # from its ending on, a lease is due when that began
    return ends_at


@dataclass(frozen=True, slots=True)
class Cut:
    """A lease is cut short at `stop_at`: by its `owner`, by the `market` for another bid, by a
    `budget`, by the `cloud` that its machine is rented from, or as its work moves home (`move`).

    pausing: its work goes on later, as its bid allows.

    money: what the consumer gets for it in all, or what the owner who asks pays.
    """

    by: str
    stop_at: datetime
    money: Money
    pausing: bool = False


def cut_of(actor: Actor, store: EventStore, row: LeaseRow) -> Cut | None:
    """Return what cuts a lease short that is not over; None: nothing does, or it is over.

    From the lease's own stream. Check with `lease` who asks.
    """
    if row.stop_at is None or row.state in ("ending", *FINAL):
        return None
    found = load(store, Lease, row.lease_id)
    if found is None or found.stop_at is None:
        return None
    paid = [
        each.money.nanos
        for each in found.rights.reclaims
        if row.tenant_id == actor.tenant_id or actor.sees_all or each.owner_id == actor.tenant_id
    ]
    money = Money(sum(paid), row.currency)
    return Cut(taker_of(found), found.stop_at, money, pausing=found.rights.pausing)


@dataclass(frozen=True, slots=True)
class ReclaimQuote:
    """What a reclaim asked for at `at` would pay, by its notice, the shortest first.

    choices: empty where the capacity comes back before the shortest notice is over, at `due_at`.
    """

    lease_id: LeaseId
    at: datetime
    due_at: datetime
    choices: tuple[Choice, ...]


def reclaim_quote(
    actor: Actor, store: EventStore, lease_id: UUID, *, now: datetime
) -> ReclaimQuote:
    """Return what a reclaim would pay: an owner's own, or, for its consumer, of all owners.

    From the lease's own stream, so it is what `reclaim_lease` would decide at that moment.

    Raises: LeaseUnknown, LeaseOver.
    """
    row = lease(actor, lease_id)
    found = load(store, Lease, lease_id)
    assert found is not None
    owner_id = actor.tenant_id if actor.tenant_id in row.owner_ids else None
    choices = quote(found, owner_id=owner_id, now=now)
    return ReclaimQuote(LeaseId(lease_id), now, found.due_at, choices)


def timeline(store: EventStore, lease_id: UUID) -> list[Recorded]:
    """Return every event of a lease, oldest first. Check with `lease` who asks."""
    return list(store.read_stream(stream_name(Lease, lease_id)))


def attempts(store: EventStore, lease_id: UUID) -> list[Attempt]:
    """Return what the hosts of a lease did of its work. Check with `lease` who asks."""
    return attempts_of(recorded.event for recorded in timeline(store, lease_id))


def resumed(actor: Actor, row: LeaseRow) -> tuple[UUID | None, UUID | None]:
    """Return whose work a lease goes on with, and which lease goes on with its own.

    Neither for who may not see its bid.
    """
    if not sees_why(actor, row):
        return None, None
    bids = visible(actor, BidRow)
    own = bids.filter(bid_id=row.bid_id).values_list("resumes_lease_id", flat=True).first()
    later = bids.filter(resumes_lease_id=row.lease_id).values("bid_id")
    leases = visible(actor, LeaseRow).filter(bid_id__in=later).order_by("granted_at")
    return own, leases.values_list("lease_id", flat=True).first()


def rest_of(actor: Actor, row: LeaseRow) -> UUID | None:
    """Return the open bid that asks for the rest of a lease's work; None: there is none to see."""
    if not sees_why(actor, row):
        return None
    later = visible(actor, BidRow).filter(resumes_lease_id=row.lease_id, state="open")
    return later.values_list("bid_id", flat=True).first()


def assignments_for(host_id: HostId) -> list[Assignment]:
    """Return what a host's agent is to run or stop, in lease order."""
    rows = LeaseShareRow.objects.filter(host_id=host_id, phase__in=("run", "warn", "stop"))
    notices = _notices_on(host_id, [row.lease_id for row in rows])
    asked = _asked_of([row.lease_id for row in rows if row.phase == "run"])
    unlike = _unlike(host_id, asked)
    return [
        Assignment(
            lease_id=LeaseId(row.lease_id),
            gpu_uuids=tuple(row.gpu_uuids),
            starts_at=row.starts_at,
            ends_at=row.ends_at,
            phase=row.phase,
            stop_at=row.stop_at,
            grace_seconds=row.grace_seconds,
            runtime=row.workload["runtime"],
            command=tuple(row.workload["command"]) or HOLD,
            environment=dict(row.workload["environment"]),
            workload_kind=row.workload["kind"],
            tenant_id=row.tenant_id,
            image=row.workload.get("image", ""),
            inputs=UUID(row.workload["inputs"]) if "inputs" in row.workload else None,
            outputs=tuple(row.workload.get("outputs", ())),
            secrets=tuple(row.workload.get("secrets", ())),
            secret_variables=tuple(row.workload.get("secret_variables", ())),
            volumes=tuple(VolumeMount(**each) for each in row.workload.get("volumes", ())),
            fetch=row.workload.get("fetch", ""),
            fetch_secret=row.workload.get("fetch_secret", ""),
            notice_seconds=notices.get(row.lease_id),
            sandbox=(row.lease_id in asked and asked[row.lease_id].sandbox_min) or "",
        )
        for row in rows.order_by("lease_id")
        if row.lease_id not in unlike
    ]


def _asked_of(lease_ids: Sequence[UUID]) -> dict[UUID, GpuRequest]:
    """Return what the bids of those leases ask for that ask for a level or a network."""
    rows = LeaseRow.objects.filter(lease_id__in=lease_ids)
    bids = {row.bid_id: row.lease_id for row in rows} if lease_ids else {}
    says = Q(query__contains="sandbox") | Q(query__contains="network=")
    asking = BidRow.objects.filter(says, bid_id__in=bids) if bids else ()
    return {bids[row.bid_id]: read_query(row.query) for row in asking}


def _unlike(host_id: HostId, asked: dict[UUID, GpuRequest]) -> set[UUID]:
    """Return the leases that have not begun and ask for a network that a host does not give now.

    They are not handed out: agents compare the level, and know nothing of what a bid asks else.
    """
    networks = {key: each.network for key, each in asked.items() if each.network is not None}
    if not networks:
        return set()
    rows = LeaseRow.objects.filter(lease_id__in=networks, state__in=("scheduled", "starting"))
    can = abilities_of(host_id)
    return {row.lease_id for row in rows if f"network-{networks[row.lease_id]}" not in can}


def _notices_on(host_id: HostId, lease_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the least notice of a reclaim on one host, as each lease has it agreed."""
    if not lease_ids:
        return {}
    rows = LeaseRow.objects.filter(lease_id__in=lease_ids)
    return {
        lease_id: share["steps"][0]["notice_seconds"]
        for lease_id, schedule in rows.values_list("lease_id", "reclaim_schedule")
        for share in schedule
        if share["host_id"] == str(host_id)
    }


@dataclass(frozen=True, slots=True)
class Carried:
    """What files a host may bring and fetch for a lease. wanted: its work is to run here now."""

    tenant_id: TenantId
    inputs: UUID | None
    outputs: tuple[str, ...]
    wanted: bool
    closed_at: datetime | None
    bid_id: BidId
    volumes: tuple[VolumeMount, ...]


def carried(host_id: HostId, lease_id: UUID) -> Carried:
    """Return what files of a lease concern a host that is, or was, one of its own.

    Raises: LeaseUnknown.
    """
    share = LeaseShareRow.objects.filter(host_id=host_id, lease_id=lease_id).first()
    row = None if share is None else LeaseRow.objects.filter(lease_id=lease_id).first()
    if share is None or row is None:
        raise LeaseUnknown(lease_id=lease_id)
    return Carried(
        tenant_id=TenantId(row.tenant_id),
        inputs=row.inputs,
        outputs=tuple(row.outputs),
        wanted=share.phase in ("run", "warn"),
        closed_at=row.closed_at,
        bid_id=BidId(row.bid_id),
        volumes=tuple(VolumeMount(**each) for each in row.volumes),
    )


def leased_gpus(
    *, since: datetime, until: datetime, market: str | None = None, model: str | None = None
) -> list[tuple[str, Window]]:
    """Return every leased GPU with the span it is taken for in [since, until), by its UUID.

    For counting only: UUIDs are not for everybody's eyes.
    """
    rows = LeaseRow.objects.exclude(state__in=FINAL).filter(starts_at__lt=until, ends_at__gt=since)
    if market is not None:
        rows = rows.filter(market=market)
    if model is not None:
        rows = rows.filter(gpu_model=model)
    return [
        (uuid, Window(row.starts_at, row.ends_at))
        for row in rows.order_by("lease_id")[:LEASED_MAX]
        for uuid in row.gpu_uuids
    ]


def due_leases(
    after: tuple[datetime, LeaseId] | None, limit: int, *, now: datetime, start_grace: timedelta
) -> list[tuple[datetime, LeaseId]]:
    """Return the leases on which the clock may have something to say by `now`, oldest first.

    Each with when it was due; only those behind `after`. Of one that was asked to start a moment
    ago nothing can be said before its hosts have had `start_grace`, unless it ends or is sold.
    """
    may_start = Q(state="starting", due_at__gt=now - start_grace, ends_at__gt=now) & (
        Q(stop_at__isnull=True) | Q(stop_at__gt=now)
    )
    rows = LeaseRow.objects.exclude(state__in=FINAL).filter(
        behind(after, "due_at", "lease_id"),
        ~(may_start & ~Q(resale_state="first-refusal")),
        due_at__lte=now,
    )
    keys = rows.order_by("due_at", "lease_id").values_list("due_at", "lease_id")[:limit]
    return [(due_at, LeaseId(lease_id)) for due_at, lease_id in keys]
