"""How the facts of supply become rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ledger.domain.events import UsageCaptured
from ledger.domain.ids import HostId
from ledger.domain.span import Window
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from listings.domain.changes import CHANGING
from listings.domain.events import (
    FormChosen,
    GpuNoted,
    GpuQuarantined,
    GpuReleased,
    HostAbilitiesReported,
    HostFellSilent,
    HostRegistered,
    HostRetired,
    HostReturned,
    HostTakingChanged,
    InventoryReported,
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferTermsChanged,
    OfferWithdrawn,
)
from listings.domain.maintenance_events import (
    MaintenanceAnnounced,
    MaintenanceCancelled,
    MaintenanceEvent,
    MaintenanceMoved,
)
from listings.domain.sla_events import OfferSlaSet
from listings.domain.windows import end_of, windows_of
from listings.models import HealthBookRow, HealthSpanRow, HostRow, OfferRow, SoldDayRow

SPANS_KEPT = 1_000
"""Of the health history of a host so much is kept, the latest."""
STRICTNESS = ("all", "paused", "draining", "released")
BY_THE_MARKET = ("absent", "starts-failed")
FIRST_WINDOW_WITHIN = timedelta(days=800)


def project_hosts(recorded: Recorded, rows: Rows) -> None:
    """Keep HostRow equal to the host streams."""
    match recorded.event:
        case HostRegistered() as host:
            rows.add(
                HostRow(
                    host_id=host.host_id,
                    tenant_id=host.tenant_id,
                    title=host.title,
                    market=host.market,
                    region=host.region,
                    labels=dict(host.labels),
                    source=host.source,
                    state="new",
                    gpus=[],
                    gpu_count=0,
                    registered_at=host.at,
                    version=recorded.version,
                )
            )
        case InventoryReported() as report:
            rows.change(
                HostRow,
                report.host_id,
                state="known",
                gpus=msgspec.to_builtins(report.gpus),
                gpu_count=len(report.gpus),
                reported_at=report.at,
                version=recorded.version,
            )
        case HostAbilitiesReported() as agent:
            rows.change(
                HostRow,
                agent.host_id,
                sandbox=agent.sandbox,
                enforces=dict(agent.enforces),
                abilities=list(agent.abilities),
                version=recorded.version,
            )
        case HostFellSilent() as fell:
            since, version = fell.heard_at, recorded.version
            rows.change(HostRow, fell.host_id, silent_since=since, version=version)
        case HostReturned(host_id=host_id):
            rows.change(HostRow, host_id, silent_since=None, version=recorded.version)
        case HostTakingChanged() as turned:
            both = {"at_host": turned.at_host, "on_market": turned.on_market}
            rows.change(HostRow, turned.host_id, **both, version=recorded.version)
        case GpuQuarantined() | GpuReleased() as changed:
            unfit = _unfit_after(rows.get(HostRow, changed.host_id).unfit, changed)
            rows.change(HostRow, changed.host_id, unfit=unfit, version=recorded.version)
        case GpuNoted() as noted:
            rows.change(HostRow, noted.host_id, version=recorded.version)
        case MaintenanceAnnounced() | MaintenanceMoved() | MaintenanceCancelled() as event:
            planned = _maintenance_after(rows.get(HostRow, event.host_id).maintenance, event)
            rows.change(HostRow, event.host_id, maintenance=planned, version=recorded.version)
        case HostRetired() as retired:
            rows.change(HostRow, retired.host_id, state="retired", version=recorded.version)


def _unfit_after(
    unfit: dict[str, dict[str, Any]], event: GpuQuarantined | GpuReleased
) -> dict[str, dict[str, Any]]:
    left = {uuid: said for uuid, said in unfit.items() if uuid != event.gpu_uuid}
    if isinstance(event, GpuQuarantined):
        left[event.gpu_uuid] = {
            "reason": event.reason,
            "detail": event.detail,
            "at": event.at.isoformat(),
            "relapses": event.relapses,
        }
    return left


def _maintenance_after(
    planned: dict[str, dict[str, Any]], event: MaintenanceEvent
) -> dict[str, dict[str, Any]]:
    """Return the windows of a host's row; those that are over go when the next is announced."""
    at, key = event.at.isoformat(), str(event.maintenance_id)
    match event:
        case MaintenanceAnnounced():
            open_ = {k: v for k, v in planned.items() if v["ends_at"] > at}
            said = {"gpu_uuids": list(event.gpu_uuids), "reason": event.reason, "at": at}
            return {**open_, key: _times(event.window) | said}
        case MaintenanceMoved():
            return {**planned, key: planned[key] | _times(event.window)}
        case MaintenanceCancelled():
            return {k: v for k, v in planned.items() if k != key}


def _times(window: Window) -> dict[str, Any]:
    return {"starts_at": window.starts_at.isoformat(), "ends_at": window.ends_at.isoformat()}


def project_health(recorded: Recorded, rows: Rows) -> None:
    """Keep HealthSpanRow equal to what the host streams say of hosts and GPUs that are not well."""
    key = f"{recorded.stream}/{recorded.version}"
    match recorded.event:
        case HostRegistered() as host:
            rows.add(HealthBookRow(host_id=host.host_id, tenant_id=host.tenant_id))
        case HostFellSilent() as fell:
            words = "its agent was not heard any more"
            span = _Span("", "silent", words, "market", fell.heard_at)
            _open(rows, fell.host_id, "silent", key, span)
        case HostReturned() as back:
            _close(rows, back.host_id, "silent", back.at)
        case HostTakingChanged() as turned:
            _close(rows, turned.host_id, "taking", turned.at)
            both = (turned.at_host, turned.on_market)
            kind = max(both, key=STRICTNESS.index)
            if kind != "all":
                where = "at the host" if turned.at_host == kind else "on the market"
                span = _Span("", kind, f"its owner turned the switch {where}", "owner", turned.at)
                _open(rows, turned.host_id, "taking", key, span)
        case GpuQuarantined() as fault:
            source = "market" if fault.reason in BY_THE_MARKET else "agent"
            span = _Span(fault.gpu_uuid, fault.reason, fault.detail, source, fault.at)
            span = replace(span, relapses=fault.relapses)
            _open(rows, fault.host_id, f"fault {fault.gpu_uuid}", key, span)
        case GpuReleased() as fit:
            _close(rows, fit.host_id, f"fault {fit.gpu_uuid}", fit.at)
        case GpuNoted() as noted:
            _note(noted, key, rows)
        case MaintenanceAnnounced() | MaintenanceMoved() | MaintenanceCancelled() as event:
            _note_maintenance(event, key, rows)


def _note(noted: GpuNoted, key: str, rows: Rows) -> None:
    if noted.note == "steady":
        _close(rows, noted.host_id, f"clocks {noted.gpu_uuid}", noted.at)
        return
    ends = None if noted.note == "slowed" else noted.at
    span = _Span(noted.gpu_uuid, noted.note, noted.detail, "agent", noted.at, ends)
    _open(rows, noted.host_id, f"clocks {noted.gpu_uuid}" if ends is None else "", key, span)


def _note_maintenance(event: MaintenanceEvent, key: str, rows: Rows) -> None:
    match event:
        case MaintenanceAnnounced() as planned:
            for number, uuid in enumerate(planned.gpu_uuids or ("",)):
                window, place = planned.window, f"maintenance {planned.maintenance_id} {number}"
                span = _Span(uuid, "maintenance", planned.reason, "owner", window.starts_at)
                span = replace(span, until=window.ends_at)
                _open(rows, planned.host_id, place, f"{key}/{number}", span)
        case MaintenanceMoved() as moved:
            times = {"since": moved.window.starts_at, "until": moved.window.ends_at}
            for span_key in _of_maintenance(rows, moved):
                rows.change(HealthSpanRow, span_key, **times)
        case MaintenanceCancelled() as cancelled:
            _cancel(rows, cancelled)


def _of_maintenance(rows: Rows, event: MaintenanceMoved | MaintenanceCancelled) -> list[str]:
    book, begins = rows.get(HealthBookRow, event.host_id), f"maintenance {event.maintenance_id} "
    return [key for place, key in book.open.items() if place.startswith(begins)]


def _cancel(rows: Rows, event: MaintenanceCancelled) -> None:
    """Let a window end now; one that had not begun is no history."""
    gone = _of_maintenance(rows, event)
    for key in gone:
        if rows.get(HealthSpanRow, key).since >= event.at:
            rows.remove(HealthSpanRow, key)
        else:
            rows.change(HealthSpanRow, key, until=event.at)
    book = rows.get(HealthBookRow, event.host_id)
    left = {place: key for place, key in book.open.items() if key not in gone}
    rows.change(HealthBookRow, event.host_id, open=left)


@dataclass(frozen=True, slots=True)
class _Span:
    gpu_uuid: str
    kind: str
    words: str
    source: str
    since: datetime
    until: datetime | None = None
    relapses: int = 0


def _open(rows: Rows, host_id: HostId, place: str, key: str, span: _Span) -> None:
    """Add a span. place: by what it is found again when it ends; empty: it has ended."""
    book = rows.get(HealthBookRow, host_id)
    rows.add(
        HealthSpanRow(
            key=key,
            host_id=host_id,
            tenant_id=book.tenant_id,
            gpu_uuid=span.gpu_uuid,
            kind=span.kind,
            words=span.words[:500],
            source=span.source,
            since=span.since,
            until=span.until,
            relapses=span.relapses,
        )
    )
    kept, opened = [*book.kept, key], {**book.open, **({place: key} if place else {})}
    if len(kept) > SPANS_KEPT:
        # The oldest that is over; windows of maintenance are over with their time.
        live = set(opened.values())
        gone = next((each for each in kept if each not in live), kept[0])
        kept.remove(gone)
        opened = {where: each for where, each in opened.items() if each != gone}
        rows.remove(HealthSpanRow, gone)
    rows.change(HealthBookRow, host_id, kept=kept, open=opened)


def _close(rows: Rows, host_id: HostId, place: str, at: datetime) -> None:
    book = rows.get(HealthBookRow, host_id)
    key = book.open.get(place)
    if key is not None:
        rows.change(HealthSpanRow, key, until=at)
        left = {where: each for where, each in book.open.items() if where != place}
        rows.change(HealthBookRow, host_id, open=left)


def project_offers(recorded: Recorded, rows: Rows) -> None:
    """Keep OfferRow equal to the offer streams."""
    version = recorded.version
    match recorded.event:
        case OfferPublished() as published:
            rows.add(_row_of(published))
        case OfferRepriced(offer_id=offer_id, floor=floor):
            nanos = floor.nanos_per_gpu_hour
            rows.change(OfferRow, offer_id, floor_nanos_per_gpu_hour=nanos, version=version)
        case OfferTermsChanged(offer_id=offer_id) as changed:
            terms = {name: msgspec.to_builtins(getattr(changed, name)) for name in CHANGING}
            rows.change(OfferRow, offer_id, **terms, version=version)
        case OfferPaused(offer_id=offer_id):
            rows.change(OfferRow, offer_id, state="paused", version=version)
        case OfferResumed(offer_id=offer_id):
            rows.change(OfferRow, offer_id, state="listed", version=version)
        case OfferWithdrawn(offer_id=offer_id, at=at):
            rows.change(OfferRow, offer_id, state="withdrawn", ended_at=at, version=version)
        case OfferExpired(offer_id=offer_id, at=at):
            rows.change(OfferRow, offer_id, state="expired", ended_at=at, version=version)
        case OfferSlaSet(offer_id=offer_id, terms=promised):
            # Of a stream of its own: no version of the offer.
            rows.change(OfferRow, offer_id, sla=msgspec.to_builtins(promised))
        case FormChosen(offer_id=offer_id, offer=offer):
            rows.change(OfferRow, offer_id, succeeded_by=offer.offer_id)


def _row_of(offer: OfferPublished) -> OfferRow:
    earliest = min((window.starts_at for window in offer.windows), default=offer.at)
    first = windows_of(offer, since=min(offer.at, earliest), until=offer.at + FIRST_WINDOW_WITHIN)
    return OfferRow(
        offer_id=offer.offer_id,
        tenant_id=offer.tenant_id,
        host_id=offer.host_id,
        market=offer.market,
        region=offer.region,
        source=offer.source,
        state="listed",
        gpu_uuids=[gpu.uuid for gpu in offer.gpus],
        gpu_models=sorted({gpu.model for gpu in offer.gpus}),
        gpus=msgspec.to_builtins(offer.gpus),
        gpu_count=len(offer.gpus),
        floor_nanos_per_gpu_hour=offer.floor.nanos_per_gpu_hour,
        currency=offer.floor.currency,
        lease_min_seconds=offer.lease_min_seconds,
        notice_seconds=offer.notice_seconds,
        grace_seconds=offer.grace_seconds,
        reclaim_fee_ppm=offer.reclaim_fee_ppm,
        cleaning_seconds=offer.cleaning_seconds,
        reclaim_steps=msgspec.to_builtins(offer.reclaim_steps),
        workload_kinds=list(offer.workload_kinds),
        isolation=offer.isolation,
        division=msgspec.to_builtins(offer.division),
        by_demand=msgspec.to_builtins(offer.by_demand),
        chosen=msgspec.to_builtins(offer.chosen),
        labels=dict(offer.labels),
        windows=msgspec.to_builtins(offer.windows),
        weekly=msgspec.to_builtins(offer.weekly),
        reserved_for=offer.reserved_for,
        starts_at=first[0].starts_at if first else offer.at,
        ends_at=end_of(offer.windows, offer.weekly),
        published_at=offer.at,
        version=1,
    )


def project_sold_days(recorded: Recorded, rows: Rows) -> None:
    """Keep SoldDayRow equal to the use that was charged for, on all accounts."""
    match recorded.event:
        case UsageCaptured() as captured if captured.price.nanos_per_gpu_hour:
            # What its owner used itself, for nothing, was not sold.
            day = captured.window.starts_at.date()
            row = rows.find(SoldDayRow, day)
            if row is None:
                rows.add(SoldDayRow(day=day, gpu_ms=captured.gpu_millis))
            else:
                rows.change(SoldDayRow, day, gpu_ms=row.gpu_ms + captured.gpu_millis)


PROJECTIONS: tuple[Projection, ...] = (
    Projection(
        name="listings.hosts",
        project=project_hosts,
        tables=(HostRow,),
        on=names_of(
            HostRegistered,
            InventoryReported,
            HostAbilitiesReported,
            HostFellSilent,
            HostReturned,
            HostTakingChanged,
            GpuQuarantined,
            GpuReleased,
            GpuNoted,
            MaintenanceAnnounced,
            MaintenanceMoved,
            MaintenanceCancelled,
            HostRetired,
        ),
    ),
    Projection(
        name="listings.health",
        project=project_health,
        tables=(HealthSpanRow, HealthBookRow),
        on=names_of(
            HostRegistered,
            HostFellSilent,
            HostReturned,
            HostTakingChanged,
            GpuQuarantined,
            GpuReleased,
            GpuNoted,
            MaintenanceAnnounced,
            MaintenanceMoved,
            MaintenanceCancelled,
        ),
    ),
    Projection(
        name="listings.offers",
        project=project_offers,
        tables=(OfferRow,),
        on=names_of(
            OfferPublished,
            OfferRepriced,
            OfferTermsChanged,
            OfferPaused,
            OfferResumed,
            OfferWithdrawn,
            OfferExpired,
            OfferSlaSet,
            FormChosen,
        ),
    ),
    Projection(
        name="listings.sold-days",
        project=project_sold_days,
        tables=(SoldDayRow,),
        is_bulk=True,
        on=names_of(UsageCaptured),
    ),
)
