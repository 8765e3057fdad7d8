"""An owner's own view: how the GPUs are used, what they earn, how agents are, and taking back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.days import local_day
from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import START
from ledger.queries import money
from listings import queries as listings
from listings.commands import pause_offer
from listings.domain.divisions import cards_of
from listings.models import HostRow
from marketplace.commands.leases import reclaim_lease
from marketplace.domain.leases.actions import LeaseEndsSooner, LeaseOver, ReclaimUnderWay
from marketplace.domain.leases.reclaim_schedule import Choice
from marketplace.models.leases import LeaseRow
from marketplace.queries.leases import leases, reclaim_quote
from metering.domain.heat import HOURS, Measured, Utilisation, heat, whole_share_ppm
from metering.queries import usage

HEAT_DAYS = 7
HOSTS_MAX = 200
HOLDING = ("scheduled", "starting", "active", "reclaiming", "ending")
MILLI = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a reclaim of one host would do to one lease."""

    row: LeaseRow
    back_at: datetime
    fee: Money
    ends_sooner: bool


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Utilisation, earnings, hosts and leases of the visitor's organisation."""
    return _show(request)


@require_POST
def reclaim(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Take a whole host back: no new leases on it, and an end to those that run there."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = listings.host(actor, host_id)
    store, by, now = default_store(), meta_of(actor), timezone.now()
    position = START
    for row in listings.offers(actor, states=("listed",), host_id=host_id):
        offer = OfferId(row.offer_id)
        position = max(position, pause_offer(store, offer_id=offer, by=by, now=now))
    told = 0
    for lease in leases(actor, states=HOLDING, host_id=host_id):
        lease_id = LeaseId(lease.lease_id)
        try:
            at = reclaim_lease(store, lease_id=lease_id, owner_id=actor.tenant_id, by=by, now=now)
        except (LeaseEndsSooner, LeaseOver, ReclaimUnderWay):
            continue  # that lease gives its GPUs back by itself, at least as soon
        except Refusal as refusal:
            return _show(request, refusal=refusal)
        position, told = max(position, at), told + 1
    said = f"{host.title}: offers paused, {told} lease{'' if told == 1 else 's'} reclaimed."
    return done(request, "/owner", position, said)


def _show(request: HttpRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    actor = actor_of(request)
    actor.need("owner", "operator", "auditor")
    now = timezone.now()
    mine = listings.own_hosts(actor)
    hosts = list(mine[:HOSTS_MAX])
    running = list(leases(actor, states=HOLDING).filter(owner_ids__contains=[actor.tenant_id]))
    seen = {
        agent.host_id: agent
        for agent in usage.agents(actor, now=now, poll_seconds=settings.ENV.agent_poll_seconds)
    }
    gpus = sum(mine.values_list("gpu_count", flat=True))
    # A card of which a share is leased is one leased card, however many others there are.
    leased = cards_of(uuid for row in running if row.starts_at <= now for uuid in row.gpu_uuids)
    listed = cards_of(each.gpu_uuid for each in listings.grid(actor, since=now, until=now + MILLI))
    what = "busy" if request.GET.get("show") == "busy" else "leased"
    heat, share_ppm = _heat(actor, gpus, now, what)
    context = {
        "gpus": gpus,
        "listed": len(listed - leased),
        "leased": len(leased),
        "earnings": money.accounts(actor).filter(kind="earnings", tenant_id=actor.tenant_id),
        "heat": heat,
        "share_ppm": share_ppm,
        "utilisation": _utilisation(actor, now),
        "what": what,
        "running": running,
        "own": actor.tenant_id,
        "hosts": [
            {
                "row": host,
                "agent": seen.get(host.host_id),
                "taken": _taken(host, running, actor, now),
            }
            for host in hosts
        ],
        "now": now,
    }
    return page(request, "pages/owner.html", context, refusal=refusal)


def _taken(host: HostRow, running: list[LeaseRow], actor: Actor, now: datetime) -> dict[str, Any]:
    """Return what a reclaim of the host would do, worst case first told to its owner."""
    found = []
    for row in running:
        if host.host_id not in row.host_ids:
            continue
        first = _first_choice(row, actor, now)
        if first is None:
            back_at = min(row.stop_at or row.ends_at, row.ends_at)
            found.append(Taken(row, back_at, Money(0, row.currency), ends_sooner=True))
        else:
            found.append(Taken(row, first.stop_at, first.compensation, ends_sooner=False))
    currency = found[0].fee.currency if found else settings.ENV.currency
    return {
        "leases": found,
        "back_at": max((each.back_at for each in found), default=now),
        "fee": Money(sum(each.fee.nanos for each in found), currency),
    }


def _first_choice(row: LeaseRow, actor: Actor, now: datetime) -> Choice | None:
    """Return the reclaim at the least notice, or None where the lease gives its GPUs back first."""
    try:
        choices = reclaim_quote(actor, default_store(), row.lease_id, now=now).choices
    except LeaseOver:
        return None
    return choices[0] if choices else None


def _utilisation(actor: Actor, now: datetime) -> Utilisation:
    """Return what the organisation's GPUs were used for in the last seven days."""
    since = now.replace(minute=0, second=0, microsecond=0) - timedelta(days=HEAT_DAYS)
    return Utilisation(
        whole_ms=listings.own_millis(actor, since=since, until=now),
        listed_ms=listings.listed_millis(actor, since=since, until=now),
        leased_ms=usage.granted_millis(actor, since=since, until=now),
    )


def _heat(actor: Actor, gpus: int, now: datetime, what: str) -> tuple[dict[str, Any], int]:
    """Return the heat map of the last seven days, by local day and hour, and the whole share."""
    zone, today = timezone.get_current_timezone(), timezone.localdate(now)
    days = [today - timedelta(days=back) for back in range(HEAT_DAYS - 1, -1, -1)]
    # In some zones a day begins within an hour of UTC.
    since = local_day(days[0], zone).starts_at.replace(minute=0, second=0, microsecond=0)
    busy = what == "busy"
    cells = heat(
        (
            Measured(row.hour, row.busy_ms if busy else row.granted_ms, row.busy_of_ms)
            for row in usage.heat(actor, since=since, until=now).filter(owner_id=actor.tenant_id)
        ),
        days=days,
        zone=zone,
        now=now,
        gpus=None if busy else gpus,
    )
    rows = [
        {
            "label": f"{day:%a %-d}",
            "percents": [None if cell is None else cell.percent for cell in row],
        }
        for day, row in zip(days, cells, strict=True)
    ]
    columns = [f"{hour:02d}" for hour in range(HOURS)]
    return {"columns": columns, "rows": rows}, whole_share_ppm(cells)
