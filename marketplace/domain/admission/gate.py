"""The quotas of a market while it clears: who may be granted, from whose quota, at what price.

Guaranteed demand, which stays within its nominal quota, is served before all other, least fair
share first, at the transfer price: the floor that its owners ask, and nothing on top. What is
borrowed, and whatever no quota speaks of, is left to the market.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from ledger.domain.ids import BidId, LeaseId, OfferId
from listings.domain.gpus import model_matches
from marketplace.domain.facts.instants import whole_second
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, is_own
from marketplace.domain.placement.sizes import largest
from marketplace.domain.quotas.card_units import by_card
from marketplace.domain.quotas.fair_share_order import Standings
from marketplace.domain.quotas.quota_book import NOT_ALLOWED, QUOTA, QuotaBook
from marketplace.domain.quotas.use import Answer, Use, gpus_of

LATER_MAX = 16
"""Places that are tried for one bid when its quota is taken at the first: each where it is free."""

Found = tuple[OpenBid, Placement]
"""A bid, in the size it gets, and where it goes."""


class _Asked(NamedTuple):
    """A bid in some size, its place, what that takes of quotas, and what these say."""

    bid: OpenBid
    placement: Placement
    use: Use
    answer: Answer


class Supply(Protocol):
    """What is on offer, as far as the gate looks into it."""

    @property
    def offers(self) -> Mapping[OfferId, Listed]:
        """Return the offers by id."""
        ...

    @property
    def of_kind(self) -> Mapping[int, Mapping[OfferId, Listed]]:
        """Return the offers by id, for each kind there is: those of one kind have like GPUs."""
        ...


class HasQuotas(Protocol):
    """A book, as far as the gate looks into it."""

    quotas: QuotaBook | None

    @property
    def catalogue(self) -> Supply:
        """Return what is on offer."""
        ...


class Gate:
    """The quotas of one clearing. What is let through is counted at once."""

    def __init__(self, quotas: QuotaBook, supply: Supply) -> None:
        self._quotas = quotas.fork()
        self._supply = supply
        self.only_own = False
        """Whether only what stays within nominal quota is let through."""
        self._let: set[BidId] = set()
        self._nowhere: dict[BidId, int] = {}
        """After how many others were let through no place at all was found for a bid."""
        self.own: set[LeaseId] = set()
        """Leases within nominal quota, which pay the transfer price."""
        self.reasons: dict[BidId, str] = {}
        """Why bids were held back that had a place."""
        self.figures: dict[BidId, str] = {}
        """The same in figures."""
        self._standings: Standings | None = None
        """Fair shares, while guaranteed demand takes its turns."""

    @property
    def quotas(self) -> QuotaBook:
        return self._quotas

    def guaranteed(self, bids: Iterable[OpenBid], *, now: int) -> Iterator[OpenBid]:
        """Yield those that a quota may be for, least fair share first; only nominal is let.

        What is let counts at once, so that whoever was just served waits for its turn again.
        """
        units = self._quotas.policies.units if self._quotas.policies is not None else {}
        bound = [bid for bid in bids if str(bid.terms.subscriber_id) in units]
        by_unit: dict[str, list[OpenBid]] = defaultdict(list)
        for bid in bound:
            by_unit[str(bid.terms.subscriber_id)].append(bid)
        self.only_own = True
        if len(by_unit) <= 1:
            yield from bound
        else:
            self._standings = self._quotas.standings(
                capacity_of(self._supply.offers.values()), at=now
            )
            yield from self._standings.turns(by_unit)
        self.only_own, self._standings = False, None

    def turns(self, bids: Iterable[OpenBid], *, now: int) -> Iterator[OpenBid]:
        """Yield first those of `guaranteed`, then all that were not let through, as they came.

        Of these the ones of units with the weight 0 come last. Nobody is yielded again since whose
        turn nobody was let through: there is still no place.
        """
        waiting = list(bids)
        yield from self.guaranteed(waiting, now=now)
        for bid in sorted(waiting, key=lambda bid: self._quotas.goes_last(bid.terms)):
            tried = self._nowhere.get(bid.bid_id) == len(self._let)
            if bid.bid_id not in self._let and not tried:
                yield bid

    def left(self, bids: Iterable[OpenBid]) -> list[OpenBid]:
        """Return those that were not let through, once each."""
        return [bid for bid in dict.fromkeys(bids) if self.may_still(bid)]

    def may_still(self, bid: OpenBid) -> bool:
        return bid.bid_id not in self._let

    def admit(
        self, bid: OpenBid, find: Callable[[OpenBid], Found | None], lease_id: LeaseId
    ) -> Found | None:
        """Find a place that the quotas allow, and count it; None: there is none.

        find: finds a place for the bid, or for the same bid with a later earliest start.
        """
        found = self._find(bid, find)
        if found is None and bid.has_ranges and bid.bid_id in self.reasons:
            smaller = self._smaller(bid, find)
            found = None if smaller is None else self._asked(*smaller)
        if found is None:
            self._nowhere[bid.bid_id] = len(self._let)
            return None
        sized, placement, use, answer = found
        own = answer.outcome == "nominal"
        if self.only_own and not own:
            return None
        self._count(bid, lease_id, use, own=own)
        return (bid if sized is bid else replace(sized, shape=bid.shape)), placement

    def _smaller(self, bid: OpenBid, find: Callable[[OpenBid], Found | None]) -> Found | None:
        """Find the largest size of a bid for which there are a place and quota."""
        why = self.reasons[bid.bid_id], self.figures.get(bid.bid_id)
        if why[0] == NOT_ALLOWED:
            return None

        def attempt(sized: OpenBid) -> Placement | None:
            exact = replace(sized, gpus_min=sized.gpus, duration_min=sized.duration)
            found = self._find(exact, find)
            return None if found is None else found.placement

        found = largest(bid, {listed.lease_min for listed in self._supply.offers.values()}, attempt)
        self.reasons[bid.bid_id] = why[0]
        if why[1] is not None:
            self.figures[bid.bid_id] = why[1]
        return found

    def _asked(self, bid: OpenBid, placement: Placement) -> _Asked:
        use = use_of(bid, placement)
        return _Asked(bid, placement, use, self._quotas.check(use))

    def _find(self, bid: OpenBid, find: Callable[[OpenBid], Found | None]) -> _Asked | None:
        """Find a place that the quotas allow; None: there is none, or none of its unit's own."""
        wish = self._permitted(bid)
        if wish is None:
            self.reasons[bid.bid_id] = NOT_ALLOWED
            return None
        asked = wish
        for _ in range(LATER_MAX):
            found = find(wish)
            if found is None:
                return None
            sized, placement, use, answer = self._asked(*found)
            if answer.fits:
                return _Asked(bid if sized is wish else sized, placement, use, answer)
            self.reasons[bid.bid_id], self.figures[bid.bid_id] = answer.reason, answer.figures
            later = max(answer.again, placement.starts + 1)
            latest = asked.deadline - asked.duration_min
            starts = self._quotas.soonest(_at(use, later), latest) if later <= latest else None
            if starts is None:
                others = self._of_others(asked, use) if answer.reason == QUOTA else None
                if others is None:
                    return None
                wish = asked = others
            else:
                wish = replace(asked, earliest=whole_second(starts))
        return None

    def lets(self, bid: OpenBid, placement: Placement, lease_id: LeaseId) -> bool:
        """Tell if the quotas allow a placement as it is, and count it."""
        use = use_of(bid, placement)
        answer = self._quotas.check(use)
        own = answer.outcome == "nominal"
        if not answer.fits or (self.only_own and not own):
            return False
        self._count(bid, lease_id, use, own=own)
        return True

    def moves(self, bid: OpenBid, placement: Placement, lease_id: LeaseId) -> bool:
        """Tell if the quotas allow a grant in another place than it has, and count it there."""
        before = self._quotas.drop(lease_id)
        use = use_of(bid, placement)
        answer = self._quotas.check(use)
        if before is not None:
            self._quotas.take(lease_id, use if answer.fits else before)
        if answer.fits:
            (self.own.add if answer.outcome == "nominal" else self.own.discard)(lease_id)
        return answer.fits

    def _permitted(self, bid: OpenBid) -> OpenBid | None:
        """Return a bid without the models that its unit may not lease; None: it may lease none."""
        policies = self._quotas.policies
        if policies is None or not policies.permits:
            return bid
        fitting = self._fitting(bid)
        allowed = tuple(each for each in fitting if self._quotas.may("lease", bid.terms, each))
        if len(allowed) == len(fitting):
            return bid
        return _of_models(bid, allowed) if allowed else None

    def _of_others(self, bid: OpenBid, use: Use) -> OpenBid | None:
        """Return a bid without the models of which there is no quota for it; None: no others."""
        models = {each.model for each in use.gpus}
        others = tuple(each for each in self._fitting(bid) if each not in models)
        return _of_models(bid, others) if others else None

    def _fitting(self, bid: OpenBid) -> list[str]:
        """Return the models on offer that a bid asks for."""
        wanted = bid.shape.request.models
        return [
            model
            for model in models_of(self._supply)
            if not wanted or any(model_matches(each, model) for each in wanted)
        ]

    def _count(self, bid: OpenBid, lease_id: LeaseId, use: Use, *, own: bool) -> None:
        self._quotas.take(lease_id, use)
        self._let.add(bid.bid_id)
        self.reasons.pop(bid.bid_id, None)
        if own:
            self.own.add(lease_id)
            if self._standings is not None:
                gpus = {each.model: each.gpus for each in use.gpus}
                self._standings.add(
                    str(bid.terms.subscriber_id),
                    by_card(gpus, self._quotas.counts),
                    use.ends - use.starts,
                )


def models_of(supply: Supply) -> list[str]:
    """Return the models of GPU on offer, in order."""
    one_of_each = (next(iter(alike.values())) for alike in supply.of_kind.values() if alike)
    return sorted({gpu.model for listed in one_of_each for gpu in listed.terms.gpus})


def capacity_of(offers: Iterable[Listed]) -> Counter[str]:
    """Count the GPUs on offer by model, each once."""
    gpus = {(gpu.uuid, gpu.model) for listed in offers for gpu in listed.terms.gpus}
    return Counter(model for _, model in gpus)


def gate_of(book: HasQuotas) -> Gate | None:
    """Return the gate of a clearing; None where there are no policies: nothing is asked then."""
    return None if book.quotas is None else Gate(book.quotas, book.catalogue)


def use_of(bid: OpenBid, placement: Placement) -> Use:
    """Return what a placement would take, and cost, at most: of own GPUs nothing."""
    wanted = {uuid for _, uuid in placement.gpus}
    offers = {id(listed): listed for listed, _ in placement.gpus}
    gpus = {
        gpu.uuid: (gpu.model, gpu.memory_mib)
        for listed in offers.values()
        for gpu in listed.terms.gpus
        if gpu.uuid in wanted
    }
    ends = placement.starts + bid.duration
    price = 0 if is_own(bid, placement) else bid.limit
    return Use(bid.terms, gpus_of(gpus.values()), placement.starts, ends, price)


def _of_models(bid: OpenBid, models: tuple[str, ...]) -> OpenBid:
    request = replace(bid.shape.request, models=models)
    return replace(bid, shape=bid.shape._replace(request=request))


def _at(use: Use, starts: int) -> Use:
    return replace(use, starts=starts, ends=use.ends - use.starts + starts)
