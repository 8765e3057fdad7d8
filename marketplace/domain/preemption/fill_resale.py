"""The engine sells what is left of leases, to bids that nothing else can serve.

After the offers of owners: at once for immediate bids, and after the search of a round for patient
ones (`preemption_pass`). The grant names the leases it cuts, and is one fact with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.span import Window
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.clearing.fills import Clearing, Fill, Rules, decided, instant_price
from marketplace.domain.facts.events import (
    Cut,
    LeaseGranted,
    MarketEvent,
    ResaleOpened,
    Resold,
    RoundCleared,
    Share,
)
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place

BIDS_MAX = 1_000
"""Bids that wait, best price first, to which the rest of a lease is offered when it comes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one share of a lease gives to a sale of its rest."""

    resale: ResaleOpened
    held: Held
    share: Share
    cleaning_seconds: int


def sell_on(
    book: Book, bids: Iterable[OpenBid], *, now: int, round_id: UUID, rules: Rules
) -> list[MarketEvent]:
    """Grant the rests of leases to the first of these bids that can have them; or nothing.

    Returns:
        A round with one grant, which cuts every lease it takes GPUs of at the grant's start.
    """
    if not book.resales:
        return []
    shelf = Shelf(book, book.calendar)
    for bid in bids:
        placement = shelf.place(bid, now=now)
        if placement is None:
            continue
        calendar = shelf.calendar
        lease_id = LeaseId(uuid5(round_id, str(bid.bid_id)))
        fill = Fill(bid, lease_id, placement, instant_price(bid, placement))
        clearing = rules.priced(Clearing((fill,), (), calendar))
        events = decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=())
        return [_named(event, shelf) for event in events]
    return []


class Shelf:
    """The rests of leases that are for sale, as offers. calendar: as it would be without them.

    An owner whose offer is paused or withdrawn takes no new consumers, from whomever they come.
    """

    def __init__(self, book: Book, calendar: Calendar, sold: Collection[LeaseId] = ()) -> None:
        """Put out all rests but those that were sold already."""
        self.calendar = calendar.fork()
        self.pieces: dict[OfferId, Piece] = {}
        self._offers = Catalogue(self.calendar)
        for lease_id in book.resales:
            if lease_id not in sold:
                self._put_out(book, lease_id)

    def place(self, bid: OpenBid, *, now: int) -> Placement | None:
        """Find a place for a bid among what neither it nor its tenant gave away."""
        entries = [
            entry
            for entry in self._offers.entries(bid.shape)
            if bid.terms.tenant_id
            not in (
                self.pieces[entry.listed.offer_id].resale.tenant_id,
                entry.listed.terms.tenant_id,
            )
        ]
        return place(bid, entries, self.calendar, now=now) if entries else None

    def named(self, shares: Iterable[Share], starts_at: datetime) -> tuple[list[Share], list[Cut]]:
        """Put the owners' own offers and terms in place of the pieces; say what is cut."""
        sold = [(share, self.pieces[share.offer_id]) for share in shares]
        named = [
            replace(
                piece.share,
                gpu_uuids=share.gpu_uuids,
                resold=Resold(
                    piece.resale.lease_id, piece.resale.tenant_id, piece.held.granted.price
                ),
            )
            for share, piece in sold
        ]
        # The seller is out in time for its GPUs to be cleaned, where their owner asks for it.
        gaps: dict[LeaseId, int] = defaultdict(int)
        for _, piece in sold:
            lease_id = piece.resale.lease_id
            gaps[lease_id] = max(gaps[lease_id], piece.cleaning_seconds)
        return named, [
            Cut(lease_id, starts_at - timedelta(seconds=gap), "resold")
            for lease_id, gap in gaps.items()
        ]

    def _put_out(self, book: Book, lease_id: LeaseId) -> None:
        position, resale = book.resales[lease_id]
        held = book.held[lease_id]
        ends_at = min(resale.ends_at, moment(held.ends))
        offers = [book.offers.get(share.offer_id) for share in held.granted.shares]
        if resale.since >= ends_at or any(offer is None or offer.paused for offer in offers):
            return
        cut_short(self.calendar, held, from_above(resale.since))
        for share in held.granted.shares:
            terms = book.offers[share.offer_id].terms
            offer_id = OfferId(uuid5(lease_id, f"resale:{share.offer_id}"))
            self.pieces[offer_id] = Piece(resale, held, share, terms.cleaning_seconds)
            rest = replace(
                terms,
                offer_id=offer_id,
                gpus=tuple(gpu for gpu in terms.gpus if gpu.uuid in share.gpu_uuids),
                windows=(Window(resale.since, ends_at),),
                weekly=None,
                floor=resale.floor,
                lease_min_seconds=max(terms.lease_min_seconds, resale.lease_min_seconds),
                # What the lease was granted on goes with it, whatever its owner says by now.
                notice_seconds=share.notice_seconds,
                grace_seconds=share.grace_seconds,
                reclaim_fee_ppm=share.reclaim_fee_ppm,
                reclaim_steps=share.reclaim_steps,
            )
            listed = Listed(rest, position, resale.floor.nanos_per_gpu_hour)
            listed.record = book.offers[share.offer_id].record
            listed.on_host(book.agents.says(share.host_id))
            self._offers.add(listed)


def cut_short(calendar: Calendar, held: Held, since: int) -> None:
    """Let a lease end in a fork of the calendar."""
    starts, lease_id = from_below(held.granted.window.starts_at), held.granted.lease_id
    for share in held.granted.shares:
        for uuid in share.gpu_uuids:
            calendar.drop(uuid, lease_id)
            if starts < since:
                calendar.take(uuid, Taken(starts, type(starts)(since), lease_id))


def _named(event: RoundCleared | LeaseGranted, shelf: Shelf) -> MarketEvent:
    if isinstance(event, RoundCleared):
        return event
    shares, cuts = shelf.named(event.shares, event.window.starts_at)
    return replace(event, shares=tuple(shares), cuts=tuple(cuts))
