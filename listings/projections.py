"""How the facts of supply become rows."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ledger.domain.events import UsageCaptured
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from listings.domain.changes import CHANGING
from listings.domain.events import (
    FormChosen,
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
from listings.domain.windows import end_of, windows_of
from listings.models import HostRow, OfferRow, SoldDayRow

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
        case GpuQuarantined() as fault:
            said = {"reason": fault.reason, "detail": fault.detail, "at": fault.at.isoformat()}
            unfit = {**rows.get(HostRow, fault.host_id).unfit, fault.gpu_uuid: said}
            rows.change(HostRow, fault.host_id, unfit=unfit, version=recorded.version)
        case GpuReleased(host_id=host_id, gpu_uuid=uuid):
            unfit = {k: v for k, v in rows.get(HostRow, host_id).unfit.items() if k != uuid}
            rows.change(HostRow, host_id, unfit=unfit, version=recorded.version)
        case HostRetired() as retired:
            rows.change(HostRow, retired.host_id, state="retired", version=recorded.version)


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
            HostRetired,
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
