"""Bring the GPUs of a round's gangs nearer together, as they prefer, once the search is over.

The search counts GPUs of pools and knows nothing of racks. So each gang that has a preference is
placed once more at the start it got, on what the round left free: if that is nearer, of the same
models and asks the same floors, it moves. Its start, its worth and everybody else stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from marketplace.domain.clearing.own_supply_first import others
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.instants import Millis
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place, place_of, places
from marketplace.domain.placement.sizes import Found
from marketplace.domain.rounds.this_round import Round


def gathered(this: Round, given: Iterable[Found], calendar: Calendar, tries: Tries) -> list[Found]:
    """Return the grants, each as near together as what is free, and its quotas, allow.

    Calendar and gate have them, there too.
    """
    found = []
    for bid, placement in given:
        prefers = bid.terms.placement == "any-hosts" and places(bid.terms.request.prefer)
        if prefers and tries.more(bid.bid_id):
            placement = _nearer(this, bid, placement, calendar)
        found.append((bid, placement))
    return found


def _nearer(this: Round, bid: OpenBid, placement: Placement, calendar: Calendar) -> Placement:
    ends = Millis(placement.starts + bid.duration)
    lease_id = this.lease_id(bid)
    this.give_back(calendar, bid, placement)
    there = replace(bid, earliest=placement.starts, deadline=ends)
    entries = others(this.book, bid, this.book.entries(bid.shape))
    again = place(there, entries, calendar, now=this.at, limit=placement.floor)
    # Of one model there are GPUs with more memory, so a limit of memory has to be asked again.
    if (
        again is not None
        and _is_better(bid, again, placement)
        and (this.gate is None or this.gate.moves(bid, again, lease_id))
    ):
        placement = again
    this.take(calendar, bid, placement)
    return placement


def _is_better(bid: OpenBid, new: Placement, old: Placement) -> bool:
    wanted = places(bid.terms.request.prefer)
    return (
        _models(new) == _models(old)
        and _floors(new) == _floors(old)
        and _spread(new, wanted) < _spread(old, wanted)
    )


def _spread(placement: Placement, wanted: Iterable[str]) -> tuple[int, ...]:
    """Return in how many places it is, by each preference, and last on how many hosts."""
    offers = [listed.terms for listed, _ in placement.gpus]
    by_word = [len({place_of(offer, word) for offer in offers}) for word in wanted]
    return (*by_word, len({offer.host_id for offer in offers}))


def _models(placement: Placement) -> Counter[str]:
    return Counter(
        gpu.model
        for listed, uuid in placement.gpus
        for gpu in listed.terms.gpus
        if gpu.uuid == uuid
    )


def _floors(placement: Placement) -> int:
    return sum(listed.floor for listed, _ in placement.gpus)
