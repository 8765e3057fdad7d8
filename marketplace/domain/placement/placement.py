"""Where a bid goes: the cheapest floor that can serve it, then the earliest start, then best fit.

A bid that seeks the soonest start goes to the earliest start first, and then to the cheapest floor.

All or nothing: a bid gets all its GPUs for its whole duration at one start, or nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from ledger.domain.ids import HostId
from ledger.domain.making import made_quickly
from listings.domain.events import OfferPublished
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid

NO_LIMIT = 1 << 62
_opening = itemgetter(0)


class Start(NamedTuple):
    """One GPU could begin to serve a bid anywhere from `first` to `last`.

    slack: how much longer than the bid the GPU is free there from now on; a tight fit wastes
    least. Time gone by wastes nothing: whoever still knows of it decides as who has forgotten.
    """

    first: int
    last: int
    slack: int
    uuid: str
    listed: Listed


_start = tuple.__new__  # a named tuple's own is several times as slow


@made_quickly
@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs that can serve a bid from `starts` on. floor: the highest among their offers."""

    starts: Millis
    gpus: tuple[tuple[Listed, str], ...]
    floor: int


def is_own(bid: OpenBid, placement: Placement) -> bool:
    """Tell if a bid goes to its own tenant's GPUs: then all of them are, and nothing is paid."""
    owner = placement.gpus[0][0].terms.tenant_id
    return owner.int == bid.terms.tenant_id.int  # asked of every grant: `==` is a call


COMPARED_MAX = 8
"""Hosts of one price that are compared for the tightest fit where all can begin at once, oldest
offer first: a thousand equal hosts are not all looked at for every bid. Those in use come first."""


SOONER_MAX = 64
"""Floors that are gone through for the soonest start, from the cheapest up."""


def place(
    bid: OpenBid,
    entries: Iterable[Entry],
    calendar: Calendar,
    *,
    now: int,
    limit: int | None = -1,
) -> Placement | None:
    """Find GPUs for a bid, or None: as it seeks them.

    Args:
        entries: the offers that fit the bid's shape, cheapest first.
        limit: in place of the bid's own; None: any price.
    """
    if bid.waits_for_room:
        return _without_reserving(bid, list(entries), calendar, now=now, limit=limit)
    if bid.seeks_soonest:
        return _soonest(bid, list(entries), calendar, now=now, limit=limit)
    return cheapest(bid, entries, calendar, now=now, limit=limit)


def _without_reserving(
    bid: OpenBid, entries: Sequence[Entry], calendar: Calendar, *, now: int, limit: int | None
) -> Placement | None:
    """Find what begins soon, or when a window opens: not what somebody holds until then.

    Who holds it may leave sooner, and then it can be had at once.
    """
    at_once = _soonest(bid.as_tried(now), entries, calendar, now=now, limit=limit)
    if at_once is not None:
        return at_once
    later = _soonest(bid, entries, calendar, now=now, limit=limit)
    held = later is not None and any(
        span.ends > now and span.starts < later.starts
        for _, uuid in later.gpus
        for span in calendar.held(uuid)
    )
    return None if held else later


def _soonest(
    bid: OpenBid, entries: Sequence[Entry], calendar: Calendar, *, now: int, limit: int | None
) -> Placement | None:
    """Find the earliest start, and the cheapest floor at that: what starts sooner costs more."""

    def by(last: int) -> Placement | None:
        ends = min(bid.deadline, Millis(last + bid.duration))
        return cheapest(replace(bid, deadline=ends), entries, calendar, now=now, limit=limit)

    at_once = by(max(bid.earliest, whole_second(now)))
    found = at_once or cheapest(bid, entries, calendar, now=now, limit=limit)
    for _ in range(SOONER_MAX):
        sooner = None if at_once or found is None else by(found.starts - 1)
        if sooner is None:
            break
        found = sooner
    return found


def cheapest(
    bid: OpenBid,
    entries: Iterable[Entry],
    calendar: Calendar,
    *,
    now: int,
    limit: int | None = -1,
) -> Placement | None:
    """Find GPUs at the cheapest floor, whatever the bid seeks, or None: as `place`."""
    since = whole_second(now)
    earliest = max(bid.earliest, since)
    if entries == () or earliest > bid.latest_start or now > bid.lapses:
        return None
    highest = NO_LIMIT if limit is None else bid.limit if limit < 0 else limit
    usable = (
        entry
        for entry in entries
        if entry.listed.open_to(bid.bid_id) and entry.listed.lease_min <= bid.duration
    )
    if bid.is_choosy:
        usable = (entry for entry in usable if bid.takes(entry.listed))
    if bid.terms.placement == "same-host":
        return _on_one_host(bid, usable, calendar, since, highest)
    return _over_hosts(bid, usable, calendar, since, highest)


def _on_one_host(
    bid: OpenBid, entries: Iterable[Entry], calendar: Calendar, since: int, highest: int
) -> Placement | None:
    earliest = max(bid.earliest, since)
    pools: dict[object, list[Start]] = defaultdict(list)
    best: dict[object, tuple[int, bool, int]] = {}
    serving: dict[object, Collection[Start]] = {}
    at_once = 0
    linked = "nvlink" in bid.terms.request.prefer
    level = highest
    for entry in entries:
        if entry.floor > level:
            break
        for key, starts in _pools_of(entry, bid, calendar, since):
            pool = pools[key]
            pool.extend(starts)
            if len(pool) < bid.gpus:
                continue
            first = _earliest_start(pool, bid.gpus)
            if first is None:
                continue
            level = entry.floor
            serving[key] = _serving(pool, first).values()
            apart = linked and len(_joined(serving[key])) < bid.gpus
            best[key] = (first, apart, len(serving[key]) - bid.gpus)
            if best[key] == (earliest, False, 0):
                return _placement(first, _chosen(serving[key], bid.gpus))
            at_once += best[key][:2] == (earliest, False)
        if at_once >= COMPARED_MAX:
            break
    if not best:
        return None
    # Equal keys cannot be told apart by their own worth: the dict keeps who came first.
    key = min(best, key=lambda each: best[each])
    return _placement(best[key][0], _chosen(serving[key], bid.gpus))


def _pools_of(
    entry: Entry, bid: OpenBid, calendar: Calendar, since: int
) -> Iterable[tuple[object, list[Start]]]:
    """Return what the entry adds to its host, or to each NVLink group where that is asked."""
    host_id = entry.listed.terms.host_id
    if not bid.terms.request.nvlink:
        yield host_id, _starts(entry.listed, entry.uuids, bid, calendar, since)
        return
    groups: dict[str | None, list[str]] = defaultdict(list)
    for uuid in entry.uuids:
        groups[entry.listed.groups[uuid]].append(uuid)
    for group, uuids in groups.items():
        yield (host_id, group), _starts(entry.listed, tuple(uuids), bid, calendar, since)


def _starts(
    listed: Listed, uuids: tuple[str, ...], bid: OpenBid, calendar: Calendar, since: int
) -> list[Start]:
    earliest, deadline = max(bid.earliest, since), bid.deadline
    if bid.keeps_off:
        earliest = bid.earliest_on(listed.terms.host_id, earliest)
    found = list[Start]()
    left: Sequence[tuple[Millis, Millis]]
    for spans, alike in listed.free_alike(uuids, calendar, since=earliest, until=deadline):
        left = spans
        if calendar.one_tenant:
            left = calendar.without_others(spans, listed.terms.host_id, bid.terms.tenant_id)
        coming = _starts_in(left, earliest, deadline, bid.duration, since)
        for uuid in alike if coming else ():
            for first, last, slack in coming:
                found.append(_start(Start, (first, last, slack, uuid, listed)))
    return found


def _starts_in(
    spans: Sequence[tuple[Millis, Millis]],
    earliest: int,
    deadline: int,
    duration: int,
    since: int,
) -> list[tuple[int, int, int]]:
    """Return first start, last start and slack of each span that is long enough."""
    found, latest = [], deadline - duration
    at = max(0, bisect_right(spans, earliest, key=_opening) - 1)
    for opens, closes in spans[at:]:
        if opens > latest:
            break
        first = opens if opens > earliest else earliest
        last = (closes if closes < deadline else deadline) - duration
        if first <= last:
            found.append((first, last, closes - (opens if opens > since else since) - duration))
    return found


def _earliest_start(pool: list[Start], gpus: int, *, linked: bool = False) -> int | None:
    """Return the first instant at which `gpus` different GPUs can all begin.

    linked: of each host only those of one NVLink group count.
    """
    pool.sort(key=_opening)
    open_until: list[int] = []
    for start in pool:
        while open_until and open_until[0] < start.first:
            heappop(open_until)
        heappush(open_until, start.last)
        # One GPU may be in two offers; that is rare, so it is looked at only here.
        if len(open_until) >= gpus:
            serving: Collection[Start] = _serving(pool, start.first).values()
            if len(_joined(serving) if linked else serving) >= gpus:
                return start.first
    return None


def _joined(serving: Iterable[Start]) -> list[Start]:
    """Keep, of the GPUs of each host, those of its largest NVLink group; of equals the cheapest."""
    groups: dict[HostId, dict[str | None, list[Start]]] = defaultdict(lambda: defaultdict(list))
    for start in serving:
        groups[start.listed.terms.host_id][start.listed.groups[start.uuid]].append(start)
    return [
        start
        for of_host in groups.values()
        for start in max(
            of_host.values(),
            key=lambda starts: (len(starts), -max(start.listed.floor for start in starts)),
        )
    ]


def _serving(pool: Iterable[Start], at: int) -> dict[str, Start]:
    """Return the GPUs that can begin at an instant; of one in two offers, the cheaper offer."""
    serving: dict[str, Start] = {}
    for start in pool:
        if start.first <= at <= start.last:
            known = serving.get(start.uuid)
            if known is None or start.listed.rank < known.listed.rank:
                serving[start.uuid] = start
    return serving


def _chosen(serving: Collection[Start], gpus: int) -> list[Start]:
    """Prefer cheap offers, then one NVLink group that just suffices, then tight gaps."""
    sizes: dict[str | None, int] = defaultdict(int)
    for start in serving:
        sizes[start.listed.groups[start.uuid]] += 1

    def preference(start: Start) -> tuple[int, bool, int, str, int, str]:
        group = start.listed.groups[start.uuid]
        size = sizes[group] if group is not None else 1
        too_small = size < gpus
        rank = -size if too_small else size
        return (start.listed.floor, too_small, rank, group or "", start.slack, start.uuid)

    return sorted(serving, key=preference)[:gpus]


def _placement(at: int, chosen: Sequence[Start]) -> Placement:
    return Placement(
        Millis(at),
        tuple((start.listed, start.uuid) for start in chosen),
        max(start.listed.floor for start in chosen),
    )


def _over_hosts(
    bid: OpenBid, entries: Iterable[Entry], calendar: Calendar, since: int, highest: int
) -> Placement | None:
    """Serve a gang: the fewest of the cheapest offers that can, then the fewest hosts of those."""
    pool: list[Start] = []
    sizes: list[tuple[int, int]] = []  # after each floor: floor, starts collected so far
    for entry in entries:
        if entry.floor > highest:
            break
        added = _starts(entry.listed, entry.uuids, bid, calendar, since)
        if added and sizes and sizes[-1][0] == entry.floor:
            sizes.pop()
        pool.extend(added)
        if added:
            sizes.append((entry.floor, len(pool)))
    linked = bid.terms.request.nvlink
    enough = _first_level(pool, sizes, bid.gpus, linked=linked)
    if enough is None:
        return None
    cheapest = pool[:enough]
    at = _earliest_start(cheapest, bid.gpus, linked=linked)
    assert at is not None
    serving: Collection[Start] = _serving(cheapest, at).values()
    by_host: dict[HostId, list[Start]] = defaultdict(list)
    for start in _joined(serving) if linked else serving:
        by_host[start.listed.terms.host_id].append(start)
    return _placement(at, _gathered(list(by_host.values()), bid))


def _gathered(hosts: list[list[Start]], bid: OpenBid) -> list[Start]:
    """Choose for a gang: near together, as it prefers, and then the fewest hosts."""
    wanted = places(bid.terms.request.prefer)
    for word in wanted:
        enough = [
            group
            for group in _by_place(hosts, word)
            if sum(len(starts) for starts in group) >= bid.gpus
        ]
        if enough:
            found = [_on_fewest(group, bid.gpus) for group in enough]
            return min(found, key=lambda chosen: len({_host_of(start) for start in chosen}))
    chosen: list[Start] = []
    for group in _by_place(hosts, wanted[0]) if wanted else [hosts]:
        size = sum(len(starts) for starts in group)
        chosen += _on_fewest(group, min(size, bid.gpus - len(chosen)))
    return chosen


def _host_of(start: Start) -> HostId:
    return start.listed.terms.host_id


def _by_place(hosts: Iterable[list[Start]], word: str) -> list[list[list[Start]]]:
    """Return the hosts of each place, the place with most GPUs first, of equals the cheapest."""
    found: dict[str, list[list[Start]]] = defaultdict(list)
    for starts in hosts:
        found[place_of(starts[0].listed.terms, word)].append(starts)
    return sorted(
        found.values(),
        key=lambda group: (
            -sum(len(starts) for starts in group),
            min(starts[0].listed.rank for starts in group),
        ),
    )


def _on_fewest(group: Iterable[list[Start]], gpus: int) -> list[Start]:
    """Choose so many GPUs on the fewest hosts; the last of these is the one that just suffices."""
    chosen: list[Start] = []
    hosts = sorted(group, key=lambda starts: (-len(starts), starts[0].listed.rank))
    while len(chosen) < gpus:
        missing = gpus - len(chosen)
        suffice = [starts for starts in hosts if len(starts) >= missing]
        here = suffice[-1] if suffice else hosts[0]
        chosen += _chosen(here, min(missing, len(here)))
        hosts.remove(here)
    return chosen


def _first_level(
    pool: Sequence[Start], sizes: Sequence[tuple[int, int]], gpus: int, *, linked: bool
) -> int | None:
    """Return how much of `pool` the lowest sufficient floor takes; more is never worse."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        count = sizes[middle][1]
        if count >= gpus and _earliest_start(list(pool[:count]), gpus, linked=linked) is not None:
            high = middle
        else:
            low = middle + 1
    return sizes[low][1] if low < len(sizes) else None


def places(prefer: Sequence[str]) -> tuple[str, ...]:
    """Return what the hosts of a gang had best have in common, the most wanted first."""
    return tuple(word for word in prefer if word != "nvlink")


def place_of(offer: OfferPublished, word: str) -> str:
    """Return where an offer is, in that respect; one that does not say is near to nothing else."""
    if word == "region":
        return offer.region
    return dict(offer.labels).get(word.removeprefix("label."), f"host {offer.host_id}")
