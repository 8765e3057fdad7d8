"""The engine sells what is left of leases, to bids that nothing else can serve.

In the instant lane alone, after the offers of owners: a patient bid waits for a round, which
rests on capacity that is free. The grant names the leases it cuts, and is one fact with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.span import Window
from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar, Taken
from marketplace.domain.catalogue import Catalogue
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import (
    Cut,
    LeaseGranted,
    MarketEvent,
    ResaleOpened,
    Resold,
    RoundCleared,
    Share,
)
from marketplace.domain.fills import Clearing, Fill
from marketplace.domain.holdings import Held
from marketplace.domain.moments import from_above, from_below, moment
from marketplace.domain.packing import place
from marketplace.domain.pricing import instant_price
from marketplace.domain.rules import Rules
from marketplace.domain.supply import Listed
from marketplace.domain.written import decided

BIDS_MAX = 1_000
"""Bids that wait, best price first, to which the rest of a lease is offered when it comes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one share of a lease gives to a sale of its rest."""

    resale: ResaleOpened
    held: Held
    share: Share


def sell_on(
    book: Book, bids: Iterable[OpenBid], *, now: int, round_id: UUID, rules: Rules
) -> list[MarketEvent]:
    """Grant the rests of leases to the first of these bids that can have them; or nothing.

    Returns:
        A round with one grant, which cuts every lease it takes GPUs of at the grant's start.
    """
    if not book.resales:
        return []
    calendar, pieces = book.calendar.fork(), dict[OfferId, Piece]()
    shelf = _shelf(book, calendar, pieces)
    for bid in bids:
        entries = [
            entry
            for entry in shelf.entries(bid.shape)
            if bid.terms.tenant_id
            not in (pieces[entry.listed.offer_id].resale.tenant_id, entry.listed.terms.tenant_id)
        ]
        placement = place(bid, entries, calendar, now=now) if entries else None
        if placement is None:
            continue
        lease_id = LeaseId(uuid5(round_id, str(bid.bid_id)))
        fill = Fill(bid, lease_id, placement, instant_price(bid, placement))
        clearing = rules.priced(Clearing((fill,), (), calendar))
        events = decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=())
        return [_named(event, pieces) for event in events]
    return []


def _shelf(book: Book, calendar: Calendar, pieces: dict[OfferId, Piece]) -> Catalogue:
    """Return the rests that are for sale as offers, and free them in `calendar`.

    An owner whose offer is paused or withdrawn takes no new consumers, from whomever they come.
    """
    shelf = Catalogue(calendar)
    for lease_id, (position, resale) in book.resales.items():
        held = book.held[lease_id]
        ends_at = min(resale.ends_at, moment(held.ends))
        offers = [book.offers.get(share.offer_id) for share in held.granted.shares]
        if resale.since >= ends_at or any(offer is None or offer.paused for offer in offers):
            continue
        _free(calendar, held, from_above(resale.since))
        for share in held.granted.shares:
            terms = book.offers[share.offer_id].terms
            offer_id = OfferId(uuid5(lease_id, f"resale:{share.offer_id}"))
            pieces[offer_id] = Piece(resale, held, share)
            rest = replace(
                terms,
                offer_id=offer_id,
                gpus=tuple(gpu for gpu in terms.gpus if gpu.uuid in share.gpu_uuids),
                windows=(Window(resale.since, ends_at),),
                weekly=None,
                floor=resale.floor,
                lease_min_seconds=max(terms.lease_min_seconds, resale.lease_min_seconds),
            )
            listed = Listed(rest, position, resale.floor.nanos_per_gpu_hour)
            listed.record = book.offers[share.offer_id].record
            shelf.add(listed)
    return shelf


def _free(calendar: Calendar, held: Held, since: int) -> None:
    """Cut a lease in a fork of the calendar."""
    starts, lease_id = from_below(held.granted.window.starts_at), held.granted.lease_id
    for share in held.granted.shares:
        for uuid in share.gpu_uuids:
            calendar.drop(uuid, lease_id)
            if starts < since:
                calendar.take(uuid, Taken(starts, type(starts)(since), lease_id))


def _named(event: RoundCleared | LeaseGranted, pieces: dict[OfferId, Piece]) -> MarketEvent:
    """Put the owners' own offers and terms in place of the pieces, and say what is cut."""
    if isinstance(event, RoundCleared):
        return event
    sold = [pieces[share.offer_id] for share in event.shares]
    shares = tuple(
        replace(
            piece.share,
            gpu_uuids=share.gpu_uuids,
            resold=Resold(piece.resale.lease_id, piece.resale.tenant_id, piece.held.granted.price),
        )
        for share, piece in zip(event.shares, sold, strict=True)
    )
    cut = dict.fromkeys(piece.resale.lease_id for piece in sold)
    return replace(
        event,
        shares=shares,
        cuts=tuple(Cut(lease_id, event.window.starts_at, "resold") for lease_id in cut),
    )
