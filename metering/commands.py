"""What can be asked of a lease's meter, and to have its use charged. Free of Django."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from math import gcd

from ledger.commands.money import capture_usage
from ledger.domain.holds import WEIGHT_MAX
from ledger.domain.ids import LeaseId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.domain.usage_items import CardShare, UsageItem
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together
from listings.domain.divisions import part_of, read_share
from listings.domain.events import OfferPublished, OfferRepriced
from marketplace.domain.facts.events import LeaseScheduled
from marketplace.domain.leases.lease import Lease
from metering.domain.correcting import NOT_CHARGED
from metering.domain.events import (
    GpuUse,
    MeterEvent,
    MeterOpened,
    UsageCorrected,
    UsageWindowClosed,
)
from metering.domain.meters import Gap, Meter, MeterUnknown


def open_meter(
    store: EventStore, *, lease_id: LeaseId, window: Window, gpus: int, by: Meta, now: datetime
) -> Position:
    """Measure a lease from here on.

    Raises: MeterOpenedOtherwise.
    """
    part = opening_meter(lease_id=lease_id, window=window, gpus=gpus, by=by, now=now)
    return record_together(store, [part])[0]


def opening_meter(*, lease_id: LeaseId, window: Window, gpus: int, by: Meta, now: datetime) -> Part:
    """Return `open_meter` as a part of something larger."""
    wanted = MeterOpened(lease_id=lease_id, window=window, gpus=gpus, at=now)

    def decide(meter: Meter | None) -> Sequence[MeterEvent]:
        return [wanted] if meter is None else meter.repeat(wanted)

    return Part(Meter, lease_id, decide, by)


def close_usage_window(
    store: EventStore,
    *,
    lease_id: LeaseId,
    window: Window,
    gpus: Sequence[GpuUse],
    gaps: Sequence[Gap],
    by: Meta,
    now: datetime,
) -> Position:
    """Say what is rated of a usage window, once.

    Raises: MeterUnknown, WindowOutOfOrder, MeterIsClosed.
    """
    return _decide(
        store, lease_id, lambda meter: meter.close_window(window, gpus, gaps, now=now), by
    )


def correct_usage(
    store: EventStore,
    *,
    lease_id: LeaseId,
    window: Window,
    added: Sequence[GpuUse],
    gaps: Sequence[Gap],
    number: int,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record that more use of a window was proved, and what is still without proof.

    Raises: MeterUnknown, CorrectedMeanwhile.
    """
    return _decide(
        store,
        lease_id,
        lambda meter: meter.correct(window, added, gaps, number=number, reason=reason, now=now),
        by,
    )


def close_meter(store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime) -> Position:
    """Say that all use of a lease is rated.

    Raises: MeterUnknown.
    """
    return _decide(store, lease_id, lambda meter: meter.close(now=now), by)


def charge_window(
    store: EventStore, closed: UsageWindowClosed | UsageCorrected, *, by: Meta, now: datetime
) -> None:
    """Charge a usage window, or a correction of one, to the lease's hold, once.

    At the price of the moment at which it begins: windows are cut where a price changes.

    Raises: what `capture_usage` raises.
    """
    correction = closed.number if isinstance(closed, UsageCorrected) else 0
    if isinstance(closed, UsageCorrected) and closed.reason in NOT_CHARGED:
        return
    granted: Counter[TenantId] = Counter()
    for gpu in closed.gpus:
        granted[gpu.owner_id] += gpu.granted_ms
    gpu_millis = granted.total()
    if not gpu_millis:
        return
    lease = load(store, Lease, closed.lease_id)
    assert lease is not None, "only a lease has a meter"
    terms = lease.terms
    weights = weights_of(terms, closed.gpus)
    for earner in weights or ():
        granted[earner] += 0
    capture_usage(
        store,
        account_id=terms.account_id,
        hold_id=terms.hold_id,
        lease_id=closed.lease_id,
        window=closed.window,
        gpu_millis=gpu_millis,
        price=lease.price_at(closed.window.starts_at),
        fee_ppm=terms.fee_ppm,
        owner_millis=sorted(granted.items()),
        weights=weights,
        platform_id=PLATFORM_ID,
        cost_centre=terms.cost_centre,
        by=by,
        now=now,
        item=replace(item_of(store, terms), shares=shares_of(closed.gpus)),
        correction=correction,
        energy_mj=energy_of(closed.gpus),
    )


def shares_of(gpus: Sequence[GpuUse]) -> tuple[CardShare, ...]:
    """Return the parts of cards among GPUs that were used, by GPU."""
    used = sorted({gpu.gpu_uuid for gpu in gpus if gpu.granted_ms})
    found = [share for uuid in used if (share := read_share(uuid)) is not None]
    return tuple(CardShare(each.card_uuid, each.kind, *part_of(each)) for each in found)


def energy_of(gpus: Sequence[GpuUse]) -> int | None:
    """Return what the cards took for a use, in millijoules; None as soon as a part is unknown."""
    total = 0
    for gpu in gpus:
        if gpu.energy_mj is None:
            return None
        total += gpu.energy_mj
    return total


def weights_of(terms: LeaseScheduled, gpus: Sequence[GpuUse]) -> dict[TenantId, int] | None:
    """Return how the earnings of a use are divided, or None where they go by GPU-time.

    Of GPUs that were resold, the owner gets what the first lease's price is of this one's, and
    the reseller the rest.
    """
    resold = {
        uuid: share.resold for share in terms.shares if share.resold for uuid in share.gpu_uuids
    }
    paid = terms.price.nanos_per_gpu_hour
    if not resold or not paid:
        return None
    weights: Counter[TenantId] = Counter()
    for gpu in gpus:
        sale = resold.get(gpu.gpu_uuid)
        kept = paid if sale is None else sale.price.nanos_per_gpu_hour
        weights[gpu.owner_id] += kept * gpu.granted_ms
        if sale is not None:
            weights[sale.tenant_id] += (paid - kept) * gpu.granted_ms
    return _whole(weights)


def _whole(weights: Counter[TenantId]) -> dict[TenantId, int]:
    """Return the same proportions in numbers that fit 64 bits."""
    shared = gcd(*weights.values()) or 1
    found = {earner: weight // shared for earner, weight in weights.items()}
    total = sum(found.values())
    if total > WEIGHT_MAX:
        found = {earner: weight * WEIGHT_MAX // total for earner, weight in found.items()}
    return found


def item_of(store: EventStore, terms: LeaseScheduled) -> UsageItem:
    """Return how bills name what a lease uses.

    list_price: the mean of the floors its offers had when it was granted, by GPU, rounded down.
    """
    asked, gpus, region, provider = 0, 0, "", ""
    for share in terms.shares:
        offer = _offer_as_of(store, share.offer_id, terms.at)
        if offer is None:
            continue
        region = offer.region
        asked += offer.floor.nanos_per_gpu_hour * len(share.gpu_uuids)
        gpus += len(share.gpu_uuids)
        if share.source == "burst":
            provider = dict(offer.labels).get("cloud", "")
    return UsageItem(
        sku=terms.gpu_model,
        region=region,
        service_class=terms.service_class,
        provider=provider,
        list_price=Rate(asked // gpus, terms.price.currency) if gpus else None,
    )


def _offer_as_of(store: EventStore, offer_id: OfferId, at: datetime) -> OfferPublished | None:
    """Return an offer with the floor it had at a time."""
    offer: OfferPublished | None = None
    for recorded in store.read_stream(f"offer-{offer_id}"):
        match recorded.event:
            case OfferPublished() as published:
                offer = published
            case OfferRepriced() as repriced if offer is not None and repriced.at <= at:
                offer = replace(offer, floor=repriced.floor)
    return offer


def terms_of_lease(store: EventStore, lease_id: LeaseId) -> LeaseScheduled | None:
    """Return the terms a lease was scheduled with; None where there is no such lease."""
    for recorded in store.read_stream(f"lease-{lease_id}"):
        event = recorded.event
        assert isinstance(event, LeaseScheduled), "a lease stream starts with its terms"
        return event
    return None


def _decide(
    store: EventStore,
    lease_id: LeaseId,
    rule: Callable[[Meter], Sequence[MeterEvent]],
    by: Meta,
) -> Position:
    def decide(meter: Meter | None) -> Sequence[MeterEvent]:
        if meter is None:
            raise MeterUnknown(lease_id=lease_id)
        return rule(meter)

    return record(store, Meter, lease_id, decide, by=by)
