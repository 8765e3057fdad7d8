"""A book as plain values, and back: what a snapshot keeps, so that a fold need not start at 0.

Everything else in a book is made from these: indexes, columns, what is due. What is added to a
book's state has to be added here; a test compares the books of both ways field by field.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ledger.domain.ids import BidId, HostId, LeaseId, OfferId, TenantId
from ledger.domain.money import Rate
from listings.domain.events import OfferPublished
from listings.domain.maintenance_events import MaintenanceAnnounced
from listings.domain.sandboxes import AgentSays
from listings.domain.sla_events import SlaTerms
from marketplace.domain.book.agents import part_tenants
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Claim, Held
from marketplace.domain.book.suspension import Aside
from marketplace.domain.facts.events import BidAmended, BidPlaced, LeaseGranted, ResaleOpened
from marketplace.domain.facts.instants import Millis, moment
from marketplace.domain.orderbook.calendar import Taken
from marketplace.domain.orderbook.host_reliability import Record
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.quotas.minimum_runtime import NONE_SET, LeastRuns
from marketplace.domain.quotas.snapshot import QuotaState, restored_quotas, state_of_quotas


@dataclass(frozen=True, slots=True)
class OfferState:
    """An offer: see `Listed`."""

    terms: OfferPublished
    published: int
    since: int
    floor: int
    paused: bool


@dataclass(frozen=True, slots=True)
class BidState:
    """A bid as placed and last amended. rate: its limit; deadline: in milliseconds."""

    terms: BidPlaced
    since: int
    rate: int
    deadline: int
    due: bool = False


@dataclass(frozen=True, slots=True)
class HeldState:
    """A lease: see `Held`."""

    granted: LeaseGranted
    ends: int
    bid: BidPlaced | None
    reclaimed_by: TenantId | None
    reclaimed_at: int
    claim: Claim | None = None
    comes_back: bool = False


@dataclass(frozen=True, slots=True)
class TakenState:
    """The spans of one GPU that somebody holds: starts, ends, lease."""

    uuid: str
    spans: tuple[tuple[int, int, LeaseId | None], ...]


@dataclass(frozen=True, slots=True)
class RecordState:
    """How reliable a host has proved: see `Record`."""

    host_id: HostId
    good: int
    all: int
    leases: int
    at: int


@dataclass(frozen=True, slots=True)
class BookState:
    """All of a book that is not made from something else in it."""

    market: str
    read_to: int
    round_at: datetime | None
    offers: tuple[OfferState, ...]
    bids: tuple[BidState, ...]
    coming: tuple[BidState, ...]
    held: tuple[HeldState, ...]
    taken: tuple[TakenState, ...]
    told: tuple[tuple[BidId, str], ...]
    resales: tuple[tuple[LeaseId, int, ResaleOpened], ...]
    records: tuple[RecordState, ...]
    quotas: QuotaState | None
    aside: tuple[tuple[BidId, Aside], ...] = ()
    least_runs: LeastRuns = NONE_SET
    silent: tuple[HostId, ...] = ()
    unfit: tuple[tuple[HostId, tuple[str, ...]], ...] = ()
    granted_bids: tuple[BidState, ...] = ()
    agents: tuple[tuple[HostId, AgentSays], ...] = ()
    kept_back: tuple[HostId, ...] = ()
    maintenance: tuple[MaintenanceAnnounced, ...] = ()
    promised: tuple[tuple[OfferId, SlaTerms], ...] = ()


def state_of(book: Book) -> BookState:
    """Return what a book is made of, in an order that only depends on the facts it took in."""
    return BookState(
        market=book.market,
        read_to=book.read_to,
        round_at=book.round_at,
        offers=tuple(
            OfferState(each.terms, each.published, each.since, each.floor, each.paused)
            for each in book.offers.values()
        ),
        bids=tuple(_state_of(bid) for bid in book.bids.values()),
        coming=tuple(_state_of(bid) for bid in book.coming.values()),
        held=tuple(
            HeldState(
                held.granted,
                held.ends,
                held.bid,
                held.reclaimed_by,
                held.reclaimed_at,
                held.claim,
                held.comes_back,
            )
            for held in book.held.values()
        ),
        taken=tuple(
            TakenState(
                uuid,
                tuple((span.starts, span.ends, span.lease_id) for span in book.calendar.held(uuid)),
            )
            for uuid in book.calendar.gpus()
        ),
        told=tuple(book.told.items()),
        resales=tuple((lease_id, *since) for lease_id, since in book.resales.items()),
        records=tuple(
            RecordState(host_id, each.good, each.all, each.leases, each.at)
            for host_id, each in book.leases.records.items()
            if each.leases
        ),
        quotas=state_of_quotas(book.quotas),
        aside=tuple(book.aside.items()),
        least_runs=book.least_runs,
        silent=tuple(sorted(book.quarantine.silent)),
        unfit=tuple(
            (host_id, tuple(sorted(uuids)))
            for host_id, uuids in sorted(book.quarantine.unfit.items())
            if uuids
        ),
        granted_bids=tuple(_state_of(bid) for bid in book.granted_bids.values()),
        agents=tuple(sorted(book.agents.said.items())),
        kept_back=tuple(sorted(book.quarantine.kept_back)),
        maintenance=tuple(
            each
            for _, planned in sorted(book.quarantine.maintenance.items())
            for each in planned.values()
        ),
        promised=tuple(sorted(book.promises.said.items())),
    )


def restored(state: BookState) -> Book:
    """Return a book as it was."""
    book = Book(state.market)
    book.read_to, book.round_at = state.read_to, state.round_at
    for gpu in state.taken:
        for starts, ends, lease_id in gpu.spans:
            book.calendar.take(gpu.uuid, Taken(Millis(starts), Millis(ends), lease_id))
    for each in state.records:
        book.leases.records[each.host_id] = Record(each.good, each.all, each.leases, each.at)
    book.quarantine.silent.update(state.silent)
    book.quarantine.kept_back.update(state.kept_back)
    for planned in state.maintenance:
        on_host = book.quarantine.maintenance.setdefault(planned.host_id, {})
        on_host[planned.maintenance_id] = planned
    book.quarantine.unfit.update((host_id, set(uuids)) for host_id, uuids in state.unfit)
    book.agents.said.update(state.agents)
    book.promises.said.update(state.promised)
    for offer in state.offers:
        listed = Listed(offer.terms, offer.published, offer.floor)
        listed.since, listed.paused = offer.since, offer.paused
        book.take_in(listed)
    for bid in state.bids:
        book.wait(_bid(bid))
    for bid in state.coming:
        book.coming[bid.terms.bid_id] = _bid(bid)
    for held in state.held:
        lease = Held(
            held.granted,
            Millis(held.ends),
            held.bid,
            held.reclaimed_by,
            held.reclaimed_at,
            held.claim,
            held.comes_back,
        )
        book.leases.put(lease)
    for host_id in book.agents.said:
        part_tenants(book, host_id)
    book.leases.claims.update(_claims(state.held))
    for bid in state.granted_bids:
        book.granted_bids[bid.terms.bid_id] = _bid(bid)
    book.told.update(state.told)
    book.aside.update(state.aside)
    book.resales.update((lease_id, (since, sale)) for lease_id, since, sale in state.resales)
    book.quotas = restored_quotas(state.quotas)
    book.least_runs = state.least_runs
    return book


def _claims(held: Iterable[HeldState]) -> dict[LeaseId, tuple[LeaseId, ...]]:
    """Return the grants that are not taken up yet, each with the leases it ends sooner."""
    waiting = {each.claim.granted_to for each in held if each.claim is not None}
    return {
        each.granted.lease_id: tuple(cut.lease_id for cut in each.granted.cuts)
        for each in held
        if each.granted.lease_id in waiting
    }


def _state_of(bid: OpenBid) -> BidState:
    return BidState(bid.terms, bid.since, bid.rate, bid.deadline, bid.due)


def _bid(state: BidState) -> OpenBid:
    bid = OpenBid.of(state.terms, since=state.since)
    if state.due:
        bid = replace(bid, due=True)
    if (bid.rate, bid.deadline) == (state.rate, state.deadline):
        return bid
    amended = BidAmended(
        bid_id=state.terms.bid_id,
        limit=Rate(state.rate, state.terms.limit.currency),
        deadline=moment(state.deadline),
        at=state.terms.at,
    )
    return replace(bid.amended(amended, since=state.since), due=state.due)
