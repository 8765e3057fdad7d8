"""How the book of a market keeps its quotas: begun by the first policy, nothing before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, get_args

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, OfferId
from marketplace.domain.admission.gate import Found, Gate, Supply
from marketplace.domain.book.held_leases import Held
from marketplace.domain.facts.events import (
    BidFilled,
    BidPlaced,
    ExtensionGranted,
    GrantRefused,
    LeaseClosed,
    LeaseGranted,
    LeaseRepriced,
)
from marketplace.domain.facts.instants import from_above, from_below
from marketplace.domain.facts.policy_events import GovernanceEvent, LeastRunSet
from marketplace.domain.index.bid_queue import Queue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.orderbook.triggers import SupplyGrew, Trigger
from marketplace.domain.placement.eligibility import Explanation, Stage
from marketplace.domain.placement.sizes import apart, home_first
from marketplace.domain.quotas.minimum_runtime import NONE_SET, LeastRuns
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.use import Use, gpus_of

KINDS: tuple[type[Event], ...] = get_args(GovernanceEvent)


class Book(Protocol):
    """The book of a market, as far as its quotas need it."""

    market: str
    quotas: QuotaBook | None
    least_runs: LeastRuns
    offers: dict[OfferId, Listed]
    held: dict[LeaseId, Held]
    queue: Queue

    @property
    def catalogue(self) -> Supply:
        """Return what is on offer."""
        ...

    def entries(self, shape: Shape) -> Sequence[Entry]:
        """Return the offers that fit a shape, cheapest first."""
        ...


def set_policy(book: Book, event: GovernanceEvent, position: int) -> Trigger | None:
    """Take in a policy of the book's market; with the first, count all leases there are.

    How long leases run at least is kept apart: to know it nothing has to be counted.
    """
    if event.market != book.market:
        return None
    if isinstance(event, LeastRunSet):
        book.least_runs = book.least_runs.after(event)
        if book.quotas is None:
            return None
    if book.quotas is None:
        book.quotas = begun(book)
    book.quotas.apply(event)
    book.queue.placeless.clear()  # who may lease what may be another
    return everywhere(book)


def begun(book: Book) -> QuotaBook:
    """Return quotas without policies that count all leases there are."""
    quotas = QuotaBook()
    if book.least_runs != NONE_SET:
        quotas.policies = Policies(least_runs=book.least_runs)
    for lease_id in book.held:
        _take(book, quotas, lease_id)
    return quotas


def follow(book: Book, event: Event, trigger: Trigger | None) -> Trigger | None:
    """Count what an event takes and gives back; what frees quota may help anywhere."""
    quotas = book.quotas
    assert quotas is not None
    match event:
        case LeaseGranted() if event.market == book.market:
            # What it cuts counts until it is taken up: it may be refused, and that lease go on.
            _take(book, quotas, event.lease_id)
        case BidFilled() if isinstance(trigger, SupplyGrew):
            granted = book.held.get(event.lease_id)
            for cut in () if granted is None else granted.granted.cuts:
                if cut.lease_id in book.held:
                    quotas.extend(cut.lease_id, book.held[cut.lease_id].ends)
            return everywhere(book, trigger.hosts)
        case GrantRefused() if quotas.drop(event.lease_id) is not None:
            freed = trigger.hosts if isinstance(trigger, SupplyGrew) else ()
            return replace(everywhere(book, freed), again=event.bid_id)
        case ExtensionGranted() if event.lease_id in book.held:
            quotas.extend(event.lease_id, book.held[event.lease_id].ends)
        case LeaseRepriced() if event.lease_id in quotas.uses:
            quotas.reprice(event.lease_id, event.price.nanos_per_gpu_hour)
        case LeaseClosed() if event.lease_id in quotas.uses:
            quotas.release(event.lease_id, from_above(event.at))
            return everywhere(book, trigger.hosts if isinstance(trigger, SupplyGrew) else ())
        case _:
            pass
    return trigger


def everywhere(book: Book, freed: Iterable[HostId] = ()) -> SupplyGrew:
    """Return that on every host something can be leased that could not be before.

    freed: the hosts that have more room.
    """
    hosts = frozenset(listed.terms.host_id for listed in book.offers.values())
    return SupplyGrew(hosts, hosts.intersection(freed))


def _take(book: Book, quotas: QuotaBook, lease_id: LeaseId) -> None:
    held = book.held[lease_id]
    if held.bid is not None:
        use = use_of_grant(book, held.granted, held.bid)
        ends = held.ends if held.claim is None else held.claim.ends
        quotas.take(lease_id, replace(use, ends=ends))


def use_of_grant(book: Book, granted: LeaseGranted, terms: BidPlaced) -> Use:
    """Return what a grant takes of quotas; the offers of its GPUs need not be there any more."""
    gpus = gpus_of(_gpus(book, granted))
    starts, ends = from_below(granted.window.starts_at), from_above(granted.window.ends_at)
    return Use(terms, gpus, starts, ends, granted.price.nanos_per_gpu_hour)


def _gpus(book: Book, granted: LeaseGranted) -> Iterable[tuple[str, int]]:
    """Yield model and memory of every GPU; where its offer is gone, what the grant tells."""
    for share in granted.shares:
        listed = book.offers.get(share.offer_id)
        known = {} if listed is None else {gpu.uuid: gpu for gpu in listed.terms.gpus}
        for uuid in share.gpu_uuids:
            gpu = known.get(uuid)
            yield (granted.gpu_model, 0) if gpu is None else (gpu.model, gpu.memory_mib)


def explained(
    book: Book,
    bid: OpenBid,
    found: Explanation,
    calendar: Calendar,
    *,
    now: int,
    counted: bool = True,
) -> Explanation:
    """Add to a funnel what quotas and limits leave of it, and heed them in the price needed.

    counted: whether it is worked out how many GPUs they leave, or only that they are too few.
    """
    if book.quotas is None or (found.placement is None and found.price_needed is None):
        return found
    gate = Gate(book.quotas, book.catalogue)

    def find(wish: OpenBid) -> Found | None:
        return home_first(wish, *apart(wish, book.entries(wish.shape)), calendar, now=now)

    if found.placement is None:
        assert found.price_needed is not None
        needed = found.price_needed.nanos_per_gpu_hour
        dearer = replace(bid, rate=needed, limit=needed, reach=needed)
        helps = gate.admit(dearer, find, LeaseId(bid.bid_id)) is not None
        return found if helps else replace(found, price_needed=None)
    let, left = gate.admit(bid, find, LeaseId(bid.bid_id)), found.funnel[-1].left
    if let is not None:
        stage = Stage("quota", left)
        return replace(found, funnel=(*found.funnel, stage), placement=let[1])
    reason = gate.reasons.get(bid.bid_id, "quota")
    most = _most_let(book, bid, find) if counted else bid.gpus - 1
    funnel = (*found.funnel, Stage(reason, min(left, most)))
    return replace(
        found,
        funnel=funnel,
        placement=None,
        reason=reason,
        price_needed=None,
        told=gate.figures.get(bid.bid_id, ""),
    )


def _most_let(book: Book, bid: OpenBid, find: Callable[[OpenBid], Found | None]) -> int:
    """Return how many GPUs of those a bid asks for the quotas would let it have."""
    assert book.quotas is not None
    least, too_many = 0, bid.gpus
    while too_many - least > 1:
        gpus = (least + too_many) // 2
        fewer = replace(bid.sized(gpus, bid.duration), gpus_min=gpus)
        gate = Gate(book.quotas, book.catalogue)
        if gate.admit(fewer, find, LeaseId(bid.bid_id)) is None:
            too_many = gpus
        else:
            least = gpus
    return least
