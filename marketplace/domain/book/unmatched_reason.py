"""The reason a bid is not matched, without the whole funnel: the engine tells it to every such bid.

The same answer as `eligibility.explain` files, which counts everything there is. Here counting
stops as soon as it is known that enough GPUs are left, and begins with the last constraint: what
most bids lack is price or a free moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from marketplace.domain.facts.instants import whole_second
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.eligibility import CONSTRAINTS, TOGETHER
from marketplace.domain.placement.placement import NO_LIMIT


def reason_of(bid: OpenBid, catalogue: Catalogue, calendar: Calendar, *, now: int) -> str:
    """Return the first constraint that leaves too few GPUs for a bid that cannot be placed."""
    earliest = max(bid.earliest, whole_second(now))
    # One GPU that is free and cheap enough would have been enough: no need to look again.
    if bid.gpus > 1 and _free(bid, catalogue, calendar, earliest, bid.limit):
        return TOGETHER
    if _free(bid, catalogue, calendar, earliest, NO_LIMIT):
        return "limit"
    if calendar.one_tenant and _free(
        bid, catalogue, calendar, earliest, NO_LIMIT, beside_others=True
    ):
        return "tenants"

    def in_time(entry: Entry) -> bool:
        return _usable(entry.listed, bid) and _fits_in(entry.listed, bid, earliest)

    withheld = calendar.withheld
    if _enough(bid, catalogue.with_windows(bid, earliest=earliest), in_time, withheld):
        return "taken"
    if withheld and _enough(bid, catalogue.with_windows(bid, earliest=earliest), in_time):
        return "health"
    left_by: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
        ("windows", lambda each: _usable(each.listed, bid)),
        ("lease-minimum", lambda each: _open(each.listed, bid)),
        ("reserved", lambda each: _offered(each.listed, bid)),
        ("paused", lambda each: bid.takes(each.listed)),
        ("reliability", lambda each: bid.chooses(each.listed.terms)),
        ("host", lambda each: True),
    )
    for next_one, keep in left_by:
        if _enough(bid, catalogue.passing(bid.shape, len(CONSTRAINTS)), keep):
            return next_one
    for passed in range(len(CONSTRAINTS) - 1, -1, -1):
        if _enough(bid, catalogue.passing(bid.shape, passed), lambda each: True):
            return CONSTRAINTS[passed][0]
    return "listed"


def _free(
    bid: OpenBid,
    catalogue: Catalogue,
    calendar: Calendar,
    earliest: int,
    limit: int,
    *,
    beside_others: bool = False,
) -> bool:
    """Tell if enough GPUs within a limit are free for long enough, each at its own time.

    beside_others: also while work of another tenant is on a host that cannot keep it apart.
    """
    parted = bool(calendar.one_tenant) and not beside_others
    found = set[str]()
    for entry in catalogue.perhaps_free(bid, earliest=earliest, limit=limit):
        if not _usable(entry.listed, bid):
            continue
        listed, uuids = entry.listed, entry.uuids
        since = bid.earliest_on(listed.terms.host_id, earliest)
        for spans, alike in listed.free_alike(uuids, calendar, since=since, until=bid.deadline):
            enough = _long_enough(spans, bid, since)
            if enough and parted:
                host_id, tenant_id = listed.terms.host_id, bid.terms.tenant_id
                left = calendar.without_others(spans, host_id, tenant_id)
                enough = _long_enough(left, bid, since)
            if enough:
                found.update(alike)
        if len(found) >= bid.gpus:
            catalogue.note_enough(bid, entry.listed)
            return True
    return False


def _enough(
    bid: OpenBid,
    entries: Iterable[Entry],
    keep: Callable[[Entry], bool],
    withheld: Collection[str] = (),
) -> bool:
    found = set[str]()
    for entry in entries:
        if keep(entry):
            found.update(entry.uuids)
            found.difference_update(withheld)
            if len(found) >= bid.gpus:
                return True
    return False


def _usable(listed: Listed, bid: OpenBid) -> bool:
    return listed.lease_min <= bid.duration and _open(listed, bid)


def _open(listed: Listed, bid: OpenBid) -> bool:
    return _offered(listed, bid) and listed.open_to(bid.terms.bid_id)


def _offered(listed: Listed, bid: OpenBid) -> bool:
    return not listed.paused and (not bid.is_choosy or bid.takes(listed))


def _fits_in(listed: Listed, bid: OpenBid, earliest: int) -> bool:
    since = bid.earliest_on(listed.terms.host_id, earliest)
    return _long_enough(listed.windows(since, bid.deadline), bid, since)


def _long_enough(spans: Iterable[tuple[int, int]], bid: OpenBid, earliest: int) -> bool:
    deadline, duration = bid.deadline, bid.duration
    latest = deadline - duration
    for opens, closes in spans:
        if opens > latest:
            return False
        starts = opens if opens > earliest else earliest
        if (closes if closes < deadline else deadline) - starts >= duration:
            return True
    return False
