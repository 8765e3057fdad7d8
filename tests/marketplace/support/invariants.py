"""What must hold of a market's log, worked out from the facts alone, not by the engine's code."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, LeaseId, OfferId
from ledger.eventstore.port import Recorded
from listings.domain.changes import on_terms
from listings.domain.events import OfferPublished, OfferRepriced, OfferTermsChanged
from listings.domain.gpus import is_of, names_part
from listings.domain.windows import windows_of
from marketplace.domain.facts.events import (
    BidAmended,
    BidFilled,
    BidPlaced,
    ExtensionGranted,
    GrantRefused,
    LeaseClosed,
    LeaseGranted,
    RoundCleared,
)
from marketplace.domain.facts.policy_events import LeastRunSet

Span = tuple[datetime, datetime]
HALF_AN_HOUR = timedelta(minutes=30)
"""What a lease may run undisturbed where no policy says otherwise."""


def audit(log: Iterable[Recorded]) -> None:
    """Check every grant of a log: no GPU twice, terms kept, prices fair to both sides."""
    offers: dict[OfferId, OfferPublished] = {}
    stood: dict[OfferId, list[tuple[int, OfferPublished]]] = defaultdict(list)
    floors: dict[OfferId, list[tuple[int, int]]] = defaultdict(list)
    wishes: dict[BidId, list[BidPlaced]] = defaultdict(list)
    grants: dict[LeaseId, LeaseGranted] = {}
    ends: dict[LeaseId, datetime] = {}
    cuts: dict[LeaseId, dict[LeaseId, datetime]] = defaultdict(dict)
    closed: dict[LeaseId, datetime] = {}
    least_runs: list[tuple[int, LeastRunSet]] = []
    read: dict[UUID, int] = {}
    for recorded in log:
        _note_supply(recorded, offers, stood, floors)
        _note_wish(recorded.event, wishes)
        match recorded.event:
            case RoundCleared() as cleared:
                read[cleared.round_id] = cleared.through
            case LeastRunSet() as said:
                least_runs.append((recorded.position, said))
            case BidFilled() as filled if filled.lease_id in grants:
                wanted = wishes[filled.bid_id][-1]
                assert _is_asked_for(grants[filled.lease_id], wanted), "as it stands at its fill"
            case LeaseGranted() as granted:
                assert granted.lease_id not in grants
                assert granted.bid_id not in {each.bid_id for each in grants.values()}
                grants[granted.lease_id] = granted
                ends[granted.lease_id] = granted.window.ends_at
                known = read.get(granted.round_id)
                _check_runs(granted, grants, offers, least_runs, known)
                for cut in granted.cuts:
                    cuts[cut.lease_id][granted.lease_id] = cut.ends_at
                _check_terms(granted, wishes[granted.bid_id], offers, floors)
                _check_promises(granted, stood, read.get(granted.round_id))
            case GrantRefused() as refused:
                for cut in grants.pop(refused.lease_id).cuts:
                    del cuts[cut.lease_id][refused.lease_id]
            case ExtensionGranted() as extension:
                ends[extension.lease_id] = extension.ends_at
                for share in grants[extension.lease_id].shares:
                    _check_window(
                        offers[share.offer_id],
                        grants[extension.lease_id].window.starts_at,
                        extension.ends_at,
                    )
            case LeaseClosed() as close:
                closed.setdefault(close.lease_id, close.at)
    for lease_id, by_grant in cuts.items():
        ends[lease_id] = min(ends[lease_id], *by_grant.values(), ends[lease_id])
    _check_calendar(grants, ends, closed)


def _note_supply(
    recorded: Recorded,
    offers: dict[OfferId, OfferPublished],
    stood: dict[OfferId, list[tuple[int, OfferPublished]]],
    floors: dict[OfferId, list[tuple[int, int]]],
) -> None:
    match recorded.event:
        case OfferPublished() as offer:
            offers[offer.offer_id] = offer
            stood[offer.offer_id].append((recorded.position, offer))
            floors[offer.offer_id].append((recorded.position, offer.floor.nanos_per_gpu_hour))
        case OfferRepriced() as repriced:
            floors[repriced.offer_id].append((recorded.position, repriced.floor.nanos_per_gpu_hour))
        case OfferTermsChanged() as changed:
            told = on_terms(stood[changed.offer_id][-1][1], changed)
            stood[changed.offer_id].append((recorded.position, told))
        case _:
            pass


def _note_wish(event: Event, wishes: dict[BidId, list[BidPlaced]]) -> None:
    match event:
        case BidPlaced() as bid:
            wishes[bid.bid_id].append(bid)
        case BidAmended() as amended if amended.bid_id in wishes:
            wanted = amended.taken_over(wishes[amended.bid_id][-1])
            wanted = replace(wanted, limit=amended.limit, deadline=amended.deadline)
            wishes[amended.bid_id].append(wanted)
        case _:
            pass


def _check_runs(
    granted: LeaseGranted,
    grants: Mapping[LeaseId, LeaseGranted],
    offers: Mapping[OfferId, OfferPublished],
    least_runs: Sequence[tuple[int, LeastRunSet]],
    read: int | None,
) -> None:
    """Check that nobody is interrupted before its least running time, as it was known then."""
    for cut in granted.cuts:
        if cut.because == "interrupted":
            assert read is not None, "a round tells how far it had read"
            lease = grants[cut.lease_id]
            said = [each for position, each in least_runs if position <= read]
            ran = cut.ends_at - lease.window.starts_at
            assert all(ran >= _least(said, model) for model in _models(lease, offers))


def _models(lease: LeaseGranted, offers: Mapping[OfferId, OfferPublished]) -> set[str]:
    return {
        gpu.model
        for share in lease.shares
        for gpu in offers[share.offer_id].gpus
        if gpu.uuid in share.gpu_uuids
    }


def _least(said: Sequence[LeastRunSet], model: str) -> timedelta:
    """Return how long a GPU of a model is left alone: what names it most exactly says so."""
    standing: dict[str | None, timedelta] = {None: HALF_AN_HOUR}
    for each in said:
        if each.lifted:
            standing.pop(each.gpu_class, None)
        else:
            standing[each.gpu_class] = timedelta(seconds=each.seconds)
    about = [each for each in standing if each is not None and is_of(each, model)]
    exactly = max(about, key=lambda each: (names_part(each), len(each)), default=None)
    return standing[exactly]


def _is_asked_for(granted: LeaseGranted, bid: BidPlaced) -> bool:
    """Tell if a bid, on certain terms of its life, asks for what it is granted."""
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    window, shortest = granted.window, bid.duration_min_seconds or bid.duration_seconds
    cost = granted.price.charge(window.millis * gpus)
    return (
        (bid.gpus_min or bid.gpus) <= gpus <= bid.gpus
        and timedelta(seconds=shortest) <= window.length
        and window.length <= timedelta(seconds=bid.duration_seconds)
        and (bid.budget is None or cost <= bid.budget)
        and bid.earliest_start <= window.starts_at
        and window.ends_at <= bid.deadline
        and granted.price.nanos_per_gpu_hour <= bid.limit.nanos_per_gpu_hour
    )


def _check_terms(
    granted: LeaseGranted,
    wishes: Sequence[BidPlaced],
    offers: dict[OfferId, OfferPublished],
    floors: dict[OfferId, list[tuple[int, int]]],
) -> None:
    uuids = [uuid for share in granted.shares for uuid in share.gpu_uuids]
    assert len(uuids) == len(set(uuids))
    assert any(_is_asked_for(granted, wish) for wish in wishes), "as it was when it was decided on"
    bid, window, price = wishes[0], granted.window, granted.price.nanos_per_gpu_hour
    assert window.starts_at >= granted.at
    if bid.placement == "same-host":
        assert len({share.host_id for share in granted.shares}) == 1
    for share in granted.shares:
        offer = offers[share.offer_id]
        _check_window(offer, window.starts_at, window.ends_at)
        assert set(share.gpu_uuids) <= {gpu.uuid for gpu in offer.gpus}
        assert offer.reserved_for in (None, bid.bid_id)
        if granted.own:
            assert share.owner_id == bid.tenant_id and price == 0
        else:
            assert any(floor <= price for _, floor in floors[share.offer_id])
        if bid.request.memory_mib_min is not None:
            memory = {gpu.uuid: gpu.memory_mib for gpu in offer.gpus}
            assert all(memory[uuid] >= bid.request.memory_mib_min for uuid in share.gpu_uuids)


def _check_promises(
    granted: LeaseGranted,
    stood: Mapping[OfferId, Sequence[tuple[int, OfferPublished]]],
    read: int | None,
) -> None:
    """Check that each share is on the terms that its offer had when the grant was decided."""
    assert read is not None, "whatever grants tells how far it had read"
    for share in granted.shares:
        offer = [told for position, told in stood[share.offer_id] if position <= read][-1]
        assert timedelta(seconds=offer.lease_min_seconds) <= granted.window.length
        if share.resold is None:
            assert share.notice_seconds == offer.notice_seconds
            assert share.grace_seconds == offer.grace_seconds
            assert share.reclaim_fee_ppm == offer.reclaim_fee_ppm
            assert share.reclaim_steps == offer.reclaim_steps


def _check_window(offer: OfferPublished, starts_at: datetime, ends_at: datetime) -> None:
    at = starts_at
    for window in windows_of(offer, since=starts_at, until=ends_at):
        assert window.starts_at <= at, "a grant lies in a window, or in windows that touch"
        at = max(at, window.ends_at)
    assert ends_at <= at


def _check_calendar(
    grants: dict[LeaseId, LeaseGranted],
    ends: dict[LeaseId, datetime],
    closed: dict[LeaseId, datetime],
) -> None:
    spans: dict[str, list[Span]] = defaultdict(list)
    for lease_id, granted in grants.items():
        starts_at = granted.window.starts_at
        ends_at = min(ends[lease_id], closed.get(lease_id, ends[lease_id]))
        if starts_at < ends_at:
            for share in granted.shares:
                for uuid in share.gpu_uuids:
                    spans[uuid].append((starts_at, ends_at))
    for uuid, held in spans.items():
        held.sort()
        for (_, ends_at), (starts_at, _) in itertools.pairwise(held):
            assert ends_at <= starts_at, f"{uuid} is leased twice"
