"""What can be asked about supply: an owner's own, and what anybody may see of the market."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import HostId, OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window, covered_millis
from ledger.turns import behind
from listings.domain.divisions import card_of, cards_of
from listings.domain.earnings import DayOfMarket, Fill, fill_of
from listings.domain.events import Gpu, ReclaimStep, WeeklyRule
from listings.domain.gpus import model_matches
from listings.domain.hosts import HostUnknown
from listings.domain.offers import OfferAction, OfferState, OfferUnknown, offered
from listings.domain.sla_events import SlaStep, SlaTerms
from listings.domain.windows import windows_between
from listings.models import HostRow, OfferRow, SoldDayRow

OPEN = ("listed", "paused")
LISTED_MAX = 2_000
FILL_DAYS = 14


@dataclass(frozen=True, slots=True)
class Listed:
    """An offer as anybody sees it: what, when and for how much, never whose.

    window: the one that runs at the time asked for, or the next. compute_percent: of the card's
    compute, that the smallest of shares has; None: they are not shares. sandbox, abilities: of its
    host, as its agent says.
    """

    offer_id: OfferId
    market: str
    region: str
    source: str
    model: str
    gpus: int
    memory_mib: int
    nvlink: bool
    mig_profiles: tuple[str, ...]
    isolation: str
    sandbox: str
    abilities: tuple[str, ...]
    compute_percent: int | None
    floor: Rate
    lease_min_seconds: int
    notice_seconds: int
    grace_seconds: int
    reclaim_fee_ppm: int
    reclaim_steps: tuple[ReclaimStep, ...]
    sla: dict[str, Any] | None
    workload_kinds: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    window: Window


@dataclass(frozen=True, slots=True)
class Supply:
    """How many GPUs of a model are listed now, within a day and within a week; lowest floor."""

    model: str
    gpus_now: int
    gpus_day: int
    gpus_week: int
    floor_min: Rate


@dataclass(frozen=True, slots=True)
class ListedSpan:
    """One window of one GPU in an owner's grid."""

    host_id: HostId
    gpu_uuid: str
    offer_id: OfferId
    state: str
    floor: Rate
    window: Window


def hosts(actor: Actor) -> QuerySet[HostRow]:
    """Return the hosts that `actor` may see, newest first."""
    return visible(actor, HostRow).order_by("-registered_at", "host_id")


def host(actor: Actor, host_id: UUID) -> HostRow:
    """Return one host that `actor` may see.

    Raises: HostUnknown.
    """
    row = visible(actor, HostRow).filter(host_id=host_id).first()
    if row is None:
        raise HostUnknown(host_id=str(host_id))
    return row


def offers(
    actor: Actor, *, states: Iterable[str] = (), host_id: UUID | None = None
) -> QuerySet[OfferRow]:
    """Return the offers that `actor` may see, newest first."""
    rows = visible(actor, OfferRow).order_by("-published_at", "offer_id")
    wanted = tuple(states)
    if wanted:
        rows = rows.filter(state__in=wanted)
    if host_id is not None:
        rows = rows.filter(host_id=host_id)
    return rows


def actions_of(actor: Actor, row: OfferRow, *, now: datetime) -> tuple[OfferAction, ...]:
    """Return what `actor` may do with an offer at `now`, by the rule of the commands.

    Only its own organisation may, in a role and with a token that may write.
    """
    if row.tenant_id != actor.tenant_id or not actor.may("offers:write"):
        return ()
    return offered(cast(OfferState, row.state), ends_at=row.ends_at, now=now)


def offer(actor: Actor, offer_id: UUID) -> OfferRow:
    """Return one offer that `actor` may see.

    Raises: OfferUnknown.
    """
    row = visible(actor, OfferRow).filter(offer_id=offer_id).first()
    if row is None:
        raise OfferUnknown(offer_id=str(offer_id))
    return row


def windows_of_row(row: OfferRow, *, since: datetime, until: datetime) -> list[Window]:
    """Return the windows of an offer that share time with [since, until), each whole, in order."""
    windows = msgspec.convert(row.windows, tuple[Window, ...])
    weekly = msgspec.convert(row.weekly, WeeklyRule | None)
    return windows_between(windows, weekly, since=since, until=until)


def gpus_of_row(row: HostRow | OfferRow) -> tuple[Gpu, ...]:
    """Return the GPUs of a host or an offer, by UUID."""
    return msgspec.convert(row.gpus, tuple[Gpu, ...])


def grid(actor: Actor, *, since: datetime, until: datetime) -> list[ListedSpan]:
    """Return when each of the actor's GPUs is offered in [since, until): host, GPU, time order."""
    rows = visible(actor, OfferRow).filter(_meets(since, until), state__in=OPEN)
    spans = [
        ListedSpan(
            HostId(row.host_id), uuid, OfferId(row.offer_id), row.state, floor_of(row), window
        )
        for row in rows
        for window in windows_of_row(row, since=since, until=until)
        for uuid in row.gpu_uuids
    ]
    return sorted(spans, key=lambda each: (each.host_id, each.gpu_uuid, each.window))


def floor_of(row: OfferRow) -> Rate:
    """Return an offer's floor price."""
    return Rate(row.floor_nanos_per_gpu_hour, row.currency)


def listed_offers(
    *,
    since: datetime,
    until: datetime,
    market: str | None = None,
    model: str | None = None,
    region: str | None = None,
    limit: int = 200,
) -> list[Listed]:
    """Return what anybody may see: open offers with a window in [since, until), lowest floor first.

    Offers set aside for one bid are not on the market and not here.

    Args:
        model: as people ask for it; "H100" finds "H100-80GB".
    """
    unfit, agents = _unfit(), _agents()
    found = [
        _public(row, windows[0], gpus, *agents.get(row.host_id, ("", [])))
        for row in _on_market(since, until, market=market, region=region)
        if model is None or any(model_matches(model, each) for each in row.gpu_models)
        for gpus in [_fit(row, unfit)]
        for windows in [windows_of_row(row, since=since, until=until)]
        if windows and gpus
    ]
    found.sort(key=lambda each: (each.floor.nanos_per_gpu_hour, str(each.offer_id)))
    return found[:limit]


def supply(*, now: datetime, market: str | None = None) -> list[Supply]:
    """Return how many GPUs of each model are listed now, within a day and within a week.

    What is leased already is among them: the market's own figures tell what is free.
    """
    week, unfit = now + timedelta(days=7), _unfit()
    counts: dict[str, list[int]] = {}
    floors: dict[str, Rate] = {}
    for row in _on_market(now, week, market=market):
        windows = windows_of_row(row, since=now, until=week)
        if not windows:
            continue
        first = windows[0].starts_at
        within = (first <= now, first < now + timedelta(days=1), True)
        for gpu in _fit(row, unfit):
            count = counts.setdefault(gpu.model, [0, 0, 0])
            for place, counted in enumerate(within):
                count[place] += counted
            floor = floor_of(row)
            floors[gpu.model] = min(floors.get(gpu.model, floor), floor)
    return [
        Supply(model, gpus_now, gpus_day, gpus_week, floors[model])
        for model, (gpus_now, gpus_day, gpus_week) in sorted(counts.items())
    ]


def recent_fill(*, now: datetime) -> Fill:
    """Return which share of listed time was sold on the last whole UTC days.

    Rented cloud capacity that was sold counts as sold too: with much bursting this reads high.
    """
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(1, FILL_DAYS + 1)]
    sold = dict(
        SoldDayRow.objects.filter(day__in=days).values_list("day", "gpu_ms").order_by("day")
    )
    listed = _listed_by_day(days)
    return fill_of(DayOfMarket(listed[day], sold.get(day, 0)) for day in days)


def told_to_agent(host_id: UUID) -> tuple[bool, str]:
    """Return if a host's agent knows of the owner's switches, and how the market's stands."""
    row = HostRow.objects.filter(host_id=host_id).values_list("abilities", "on_market").first()
    return (False, "all") if row is None else ("hand" in row[0], row[1])


def abilities_of(host_id: UUID) -> list[str]:
    """Return what a host's agent says that it can do."""
    row = HostRow.objects.filter(host_id=host_id).values_list("abilities", flat=True).first()
    return row or []


def listed_cards(host_id: UUID) -> frozenset[str]:
    """Return the GPUs of a host that are offered, of shares the cards."""
    rows = OfferRow.objects.filter(host_id=host_id, state__in=OPEN)
    return frozenset(card_of(uuid) for row in rows for uuid in row.gpu_uuids)


def offers_over(
    after: tuple[datetime, OfferId] | None, limit: int, *, now: datetime
) -> list[tuple[datetime, OfferId]]:
    """Return offers in open states whose last window is over by `now`, with when, oldest first."""
    rows = OfferRow.objects.filter(
        behind(after, "ends_at", "offer_id"), state__in=OPEN, ends_at__lte=now
    )
    keys = rows.order_by("ends_at", "offer_id").values_list("ends_at", "offer_id")[:limit]
    return [(ends_at, OfferId(offer_id)) for ends_at, offer_id in keys if ends_at is not None]


def markets_by_demand() -> list[str]:
    """Return the markets that have offers by demand, in order."""
    rows = OfferRow.objects.filter(state="listed", by_demand__isnull=False)
    return list(rows.order_by("market").values_list("market", flat=True).distinct())


def _on_market(
    since: datetime, until: datetime, *, market: str | None = None, region: str | None = None
) -> QuerySet[OfferRow]:
    kept_back = Q(silent_since__isnull=False) | ~Q(at_host="all") | ~Q(on_market="all")
    silent = HostRow.objects.filter(kept_back).values("host_id")
    rows = OfferRow.objects.filter(_meets(since, until), state="listed", reserved_for=None)
    rows = rows.exclude(host_id__in=silent)
    if market is not None:
        rows = rows.filter(market=market)
    if region is not None:
        rows = rows.filter(region=region)
    return rows.order_by("floor_nanos_per_gpu_hour", "offer_id")[:LISTED_MAX]


def _meets(since: datetime, until: datetime) -> Q:
    return Q(starts_at__lt=until) & (Q(ends_at=None) | Q(ends_at__gt=since))


def steps_of_row(row: OfferRow) -> tuple[ReclaimStep, ...]:
    """Return what a reclaim with more notice than the least pays."""
    return tuple(ReclaimStep(**step) for step in row.reclaim_steps)


def sla_of(said: Mapping[str, Any] | None) -> SlaTerms | None:
    """Return what is promised of a service as it is kept in rows; None: nothing."""
    if said is None:
        return None
    steps = tuple(SlaStep(**step) for step in said["steps"])
    return SlaTerms(said["start_by_seconds"], said["late_credit_ppm"], steps)


def _agents() -> dict[UUID, tuple[str, list[str]]]:
    """Return how far hosts keep work apart, and what they can do, of those whose agents say it."""
    rows = HostRow.objects.exclude(sandbox="", abilities=[])
    return {
        host_id: (sandbox, abilities)
        for host_id, sandbox, abilities in rows.values_list("host_id", "sandbox", "abilities")
    }


def _unfit() -> dict[UUID, set[str]]:
    """Return the GPUs that are leased to nobody for now, by their hosts."""
    rows = HostRow.objects.exclude(unfit={}).values_list("host_id", "unfit")
    return {host_id: set(unfit) for host_id, unfit in rows}


def _fit(row: OfferRow, unfit: dict[UUID, set[str]]) -> tuple[Gpu, ...]:
    """Return the GPUs of an offer that can be leased, for all that is known of their health."""
    gpus, wrong = gpus_of_row(row), unfit.get(row.host_id)
    if not wrong:
        return gpus
    return tuple(
        gpu for gpu in gpus if wrong.isdisjoint((gpu.uuid, card_of(gpu.uuid), gpu.card_uuid or ""))
    )


def _public(
    row: OfferRow, window: Window, gpus: Sequence[Gpu], sandbox: str, abilities: Sequence[str]
) -> Listed:
    return Listed(
        offer_id=OfferId(row.offer_id),
        market=row.market,
        region=row.region,
        source=row.source,
        model=", ".join(row.gpu_models),
        gpus=len(gpus),
        memory_mib=min(gpu.memory_mib for gpu in gpus),
        nvlink=len({gpu.nvlink_group for gpu in gpus} - {None}) == 1 and len(gpus) > 1,
        mig_profiles=tuple(sorted({name for gpu in gpus for name in gpu.mig_profiles})),
        isolation=row.isolation,
        sandbox=sandbox,
        abilities=tuple(abilities),
        compute_percent=min(
            (gpu.compute_percent for gpu in gpus if gpu.compute_percent), default=None
        ),
        floor=floor_of(row),
        lease_min_seconds=row.lease_min_seconds,
        notice_seconds=row.notice_seconds,
        grace_seconds=row.grace_seconds,
        reclaim_fee_ppm=row.reclaim_fee_ppm,
        reclaim_steps=steps_of_row(row),
        sla=row.sla,
        workload_kinds=tuple(row.workload_kinds),
        labels=tuple(sorted(row.labels.items())),
        window=window,
    )


def own_hosts(actor: Actor) -> QuerySet[HostRow]:
    """Return the hosts of the actor's organisation that are not retired, newest first."""
    return hosts(actor).filter(tenant_id=actor.tenant_id).exclude(state="retired")


def own_millis(actor: Actor, *, since: datetime, until: datetime) -> int:
    """Return for how long the actor's organisation had GPUs here in [since, until).

    In GPU-milliseconds. A host counts from when it was registered.
    """
    rows = own_hosts(actor).filter(registered_at__lt=until)
    return sum(
        gpus * (Window(max(since, registered_at), until).millis)
        for gpus, registered_at in rows.values_list("gpu_count", "registered_at")
    )


def listed_millis(actor: Actor, *, since: datetime, until: datetime) -> int:
    """Return for how long GPUs of the actor's organisation were on offer in [since, until).

    In GPU-milliseconds; each card counts once, however many of its shares or offers there are. A
    pause counts as on offer: rows do not tell when it was.
    """
    span, by_card = Window(since, until), defaultdict[str, list[Window]](list)
    for row, shown in _shown(OfferRow.objects.filter(tenant_id=actor.tenant_id), span):
        for card in cards_of(row.gpu_uuids):
            by_card[card].append(shown)
    return sum(map(covered_millis, by_card.values()))


def _shown(rows: QuerySet[OfferRow], span: Window) -> Iterator[tuple[OfferRow, Window]]:
    """Yield when owners' offers were on the market, within `span`."""
    since, until = span.starts_at, span.ends_at
    rows = rows.filter(_meets(since, until), source="local", published_at__lt=until)
    for row in rows.filter(Q(ended_at=None) | Q(ended_at__gt=since))[:LISTED_MAX]:
        ended_at = row.ended_at or until
        if ended_at <= row.published_at:
            continue
        life = Window(row.published_at, ended_at).clip(span)
        for window in windows_of_row(row, since=since, until=until):
            shown = life and window.clip(life)
            if shown:
                yield row, shown


def _listed_by_day(days: list[date]) -> dict[date, int]:
    """Return how many GPU-milliseconds owners had listed on each UTC day."""
    spans = {day: _day(day) for day in days}
    whole = Window(min(spans.values()).starts_at, max(spans.values()).ends_at)
    listed = dict.fromkeys(days, 0)
    for row, shown in _shown(OfferRow.objects.all(), whole):
        for day, span in spans.items():
            part = shown.clip(span)
            listed[day] += part.millis * row.gpu_count if part else 0
    return listed


def _day(day: date) -> Window:
    starts_at = datetime.combine(day, time(), tzinfo=UTC)
    return Window(starts_at, starts_at + timedelta(days=1))
