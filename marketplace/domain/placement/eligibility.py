"""Which GPUs can serve which bid, and what stands in the way of the others.

`CONSTRAINTS` is one list, in the order in which people are told: first what a GPU is, then what
its owner allows, then when it is free, then what it costs. The engine's index, the reason of an
unmatched bid and the funnel of an explanation are all made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ledger.domain.money import Rate
from listings.domain.divisions import PPM, compute_ppm
from listings.domain.gpus import is_of, model_matches, names_share
from listings.domain.markets import within
from listings.domain.sandboxes import connects
from marketplace.domain.bids.abilities import can_do, keeps_apart
from marketplace.domain.bids.query_language import ISOLATIONS, write_query
from marketplace.domain.bids.workload_profiles import allowed_by
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.facts.instants import whole_second
from marketplace.domain.facts.values import ReclaimTerm
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Kind, Listed, Spec
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.placement.placement import Placement, cheapest
from marketplace.domain.placement.sizes import apart, home_first

Pool = list[tuple[Listed, tuple[str, ...]]]
"""Offers with those of their GPUs that are still in question."""

Fits = Callable[[Shape, Spec, Kind], bool]

matches = lru_cache(maxsize=65_536)(model_matches)


def _model(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked, have = shape.request, spec.gpu.model
    return (not asked.models or any(matches(each, have) for each in asked.models)) and not any(
        is_of(each, have) for each in asked.not_models
    )


def _memory(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return spec.gpu.memory_mib >= (shape.request.memory_mib_min or 0)


def _compute(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked = shape.request.compute_capability_min
    return asked is None or _capability(spec.gpu.compute_capability) >= _capability(asked)


@lru_cache(maxsize=1_024)
def _capability(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _driver(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked = shape.request.driver_min
    return asked is None or _version(spec.gpu.driver) >= _version(asked)


@lru_cache(maxsize=1_024)
def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a driver's version; one that has none is older than all."""
    form = re.match(r"[0-9]+(\.[0-9]+)*", text)
    return () if form is None else tuple(int(part) for part in form[0].split("."))


def _nvlink(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return not shape.request.nvlink or spec.joined >= (shape.request.nvlink_min or 1)


def _region(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked, unwanted = shape.request.regions, shape.request.not_regions
    return (not asked or any(within(kind.region, each) for each in asked)) and not any(
        within(kind.region, each) for each in unwanted
    )


def _labels(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked, unwanted = shape.request.labels, shape.request.not_labels
    return set(asked) <= set(kind.labels) and set(kind.labels).isdisjoint(unwanted)


def _share(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked = shape.request.compute_percent_min
    return asked is None or compute_ppm(spec.gpu) * 100 >= asked * PPM


def _isolation(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked = shape.request.isolation
    if spec.gpu.compute_percent is not None and (
        shape.gang or (asked is None and not _named(shape.request.models, spec.gpu.model))
    ):
        return False
    return asked is None or ISOLATIONS.index(kind.isolation) <= ISOLATIONS.index(asked)


def _named(models: Iterable[str], share: str) -> bool:
    return any(names_share(asked) and matches(asked, share) for asked in models)


def _workload(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return allowed_by(kind.workload_kinds, shape.kind)


def _sandbox(shape: Shape, spec: Spec, kind: Kind) -> bool:
    apart = kind.sandbox, kind.abilities, kind.isolation
    return keeps_apart(shape.request, shape.needs, *apart)


def _network(shape: Shape, spec: Spec, kind: Kind) -> bool:
    asked = shape.request.network
    return asked is None or connects(asked, kind.abilities, kind.isolation)


def _abilities(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return can_do(shape.needs, kind.abilities)


def _starts(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return kind.level.starts_within(shape.request.start_seconds_max)


def _availability(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return kind.level.is_available(shape.request.availability_min_ppm)


def _currency(shape: Shape, spec: Spec, kind: Kind) -> bool:
    return kind.currency == shape.currency


CONSTRAINTS: tuple[tuple[str, Fits], ...] = (
    ("gpu-model", _model),
    ("memory", _memory),
    ("compute-capability", _compute),
    ("compute-share", _share),
    ("driver", _driver),
    ("nvlink", _nvlink),
    ("region", _region),
    ("labels", _labels),
    ("isolation", _isolation),
    ("workload-kind", _workload),
    ("sandbox", _sandbox),
    ("network", _network),
    ("abilities", _abilities),
    ("starts", _starts),
    ("availability", _availability),
    ("currency", _currency),
)
"""What never changes while an offer stands."""

TOGETHER = "together"

REASONS: dict[str, str] = {
    "listed": "too few GPUs are on the market",
    "gpu-model": "too few GPUs of the models asked for",
    "memory": "too few GPUs with that much memory",
    "compute-capability": "too few GPUs with that compute capability",
    "compute-share": "too few GPUs with that share of a card's compute",
    "driver": "too few GPUs with that driver or a newer one",
    "nvlink": "too few GPUs joined by NVLink",
    "region": "too few GPUs in that region",
    "labels": "too few GPUs with those labels",
    "isolation": "too few GPUs at that isolation level",
    "workload-kind": "the owners do not allow this kind of workload",
    "sandbox": "too few GPUs on hosts that keep work apart at that level",
    "network": "too few GPUs on hosts from which work connects as the bid asks",
    "abilities": "too few GPUs on hosts whose agent can do what the work needs",
    "starts": "too few GPUs whose owners promise a start as soon as the bid asks",
    "availability": "too few GPUs whose owners promise the availability that the bid asks for",
    "currency": "the GPUs are offered in another currency",
    "host": "the bid excludes the hosts, owners or reclaim terms",
    "notice": "too few GPUs with that much notice before a reclaim",
    "reclaim": "too few GPUs with that much compensation for a reclaim",
    "grace": "too few GPUs with that grace period",
    "reliability": "too few GPUs on hosts that reliable",
    "paused": "the offers are paused",
    "reserved": "the GPUs are reserved for another bid",
    "lease-minimum": "the owners lease for longer only",
    "windows": "no listed window is long enough between earliest start and deadline",
    "health": "the hosts are silent or unhealthy: nobody can lease them for now",
    "taken": "the GPUs are leased at that time",
    "tenants": "another organisation's work is there then, and the hosts cannot keep it apart",
    "limit": "the floor price is above the limit price",
    "own": "own GPUs and those of others cannot be in one lease",
    "together": "not enough GPUs are free at the same time in one place",
    "quota": "the quota of the business unit and its cohort is used up",
    "limit-bid": "the bid is larger than the market's limit for one bid",
    "limit-user": "the user's limit is used up",
    "limit-subscriber": "the business unit's limit is used up",
    "limit-tenant": "the organisation's limit is used up",
    "not-allowed": "the market's policies do not let the business unit lease such GPUs",
    "set-aside": "rounds failed with this bid, so they leave it out for a while",
    "unverified": "its grant failed verification and was dropped",
    "overtaken": "what a round had found for it was taken or changed meanwhile",
}
"""Every reason an unmatched bid can have, in order, and how it reads."""

FILED_AS: dict[str | None, str] = dict.fromkeys(("notice", "reclaim", "grace"), "host")
"""Reasons that are told apart to who asks, but not in what is decided: there they have been one
from the beginning, and a round cleared again must tell what it told."""


def passed(shape: Shape, kind: Kind) -> tuple[int, ...]:
    """Return for each spec of a kind how many constraints it passes before one that it does not."""
    return tuple(
        next(
            (place for place, (_, fits) in enumerate(CONSTRAINTS) if not fits(shape, spec, kind)),
            len(CONSTRAINTS),
        )
        for spec in kind.specs
    )


class Stage(NamedTuple):
    """One step of the funnel: GPUs left once `constraint` is applied too.

    asked: of notice, reclaim and grace, the condition of the bid's query; else nothing.
    """

    constraint: str
    left: int
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a bid is not matched, or what it would get.

    funnel: starts with all GPUs of the market; each stage applies one more constraint.
    reason: the first constraint that leaves too few GPUs; None: it can be placed now.
    price_needed: the lowest limit at which it could be placed now, all else equal; None: none.
    told: the arithmetic of the quota or limit that stands in the way, where one does.
    """

    funnel: tuple[Stage, ...]
    reason: str | None
    placement: Placement | None
    price_needed: Rate | None
    told: str = ""

    @property
    def filed(self) -> str | None:
        """Return the reason as decisions tell it: see `FILED_AS`."""
        return FILED_AS.get(self.reason, self.reason)


@dataclass(frozen=True, slots=True)
class Screened:
    """What is left of all supply for one shape, before anything that changes from hour to hour."""

    stages: tuple[Stage, ...]
    fit: tuple[tuple[Listed, tuple[str, ...]], ...]


def screen(shape: Shape, offers: Iterable[Listed]) -> Screened:
    """Apply `CONSTRAINTS` one by one to every GPU of the market."""
    pool = [
        (listed, gpu.uuid, listed.kind.specs[spec])
        for listed in offers
        for gpu, spec in zip(listed.terms.gpus, listed.specs, strict=True)
    ]
    stages = [Stage("listed", len({uuid for _, uuid, _ in pool}))]
    for name, fits in CONSTRAINTS:
        pool = [each for each in pool if fits(shape, each[2], each[0].kind)]
        stages.append(Stage(name, len({uuid for _, uuid, _ in pool})))
    by_offer: dict[int, tuple[Listed, list[str]]] = {}
    for listed, uuid, _ in pool:
        by_offer.setdefault(id(listed), (listed, []))[1].append(uuid)
    fit = tuple((listed, tuple(uuids)) for listed, uuids in by_offer.values())
    return Screened(tuple(stages), fit)


def explain(
    bid: OpenBid,
    screened: Screened,
    entries: Sequence[Entry],
    calendar: Calendar,
    *,
    now: int,
    own: bool = False,
    priced: bool = True,
) -> Explanation:
    """Walk the funnel of one bid, counting what would do in the least of its sizes.

    Args:
        screened: what fits its shape. entries: the same without paused offers, cheapest first.
        calendar: with what is granted already.
        own: whether the bid's own tenant has offers, which serve it first, at any floor.
        priced: whether it is looked for the price that it needs.
    """

    def is_own(listed: Listed) -> bool:
        return own and listed.terms.tenant_id == bid.terms.tenant_id

    at_home, away = apart(bid, entries) if own else ((), entries)
    placed = home_first(bid, at_home, away, calendar, now=now)
    bid = bid.least
    pool = list(screened.fit)
    funnel = list(screened.stages)
    earliest = max(bid.earliest, whole_second(now))

    def narrow(name: str, keep: Callable[[Listed], bool], asked: str = "") -> None:
        pool[:] = [(listed, uuids) for listed, uuids in pool if keep(listed)]
        funnel.append(Stage(name, _count(pool), asked))

    narrow("host", lambda listed: bid.chooses_host(listed.terms))
    for promise, condition in _promises(bid.shape.request):
        narrow(promise, _promised(bid, promise), condition)
    narrow("reliability", lambda listed: bid.trusts(listed.record))
    narrow("paused", lambda listed: not listed.paused)
    narrow("reserved", lambda listed: listed.open_to(bid.bid_id))
    narrow("lease-minimum", lambda listed: listed.lease_min <= bid.duration)
    narrow("windows", lambda listed: _has_window(listed, bid, earliest))
    pool = _not_taken(_well(pool, calendar, funnel), bid, calendar, earliest, funnel)
    narrow("limit", lambda listed: is_own(listed) or listed.floor <= bid.limit)
    if own:
        parts = [[each for each in pool if is_own(each[0]) == home] for home in (True, False)]
        funnel.append(Stage("own", max(map(_count, parts))))
    placement = None if placed is None else placed[1]
    left = funnel[-1].left
    funnel.append(Stage(TOGETHER, left if placement is not None else min(left, bid.gpus - 1)))
    short = (stage.constraint for stage in funnel if stage.left < bid.gpus)
    reason = next(short) if placement is None else None
    at_any_price = None if bid.seeks_soonest else placement
    if at_any_price is None and priced:
        at_any_price = cheapest(bid, away, calendar, now=now, limit=None)
    needed = None if at_any_price is None else Rate(at_any_price.floor, bid.shape.currency)
    return Explanation(tuple(funnel), reason, placement, needed)


def _not_taken(
    pool: Pool, bid: OpenBid, calendar: Calendar, earliest: int, funnel: list[Stage]
) -> Pool:
    """Return what is free for long enough, and on hosts that have no other tenant then."""
    pool = _free(pool, bid, calendar, earliest)
    funnel.append(Stage("taken", _count(pool)))
    if calendar.one_tenant:
        pool = _free(pool, bid, calendar, earliest, apart=True)
        funnel.append(Stage("tenants", _count(pool)))
    return pool


def _promised(bid: OpenBid, promise: ReclaimTerm) -> Callable[[Listed], bool]:
    """Return what tells if an offer promises enough of one thing, where it does of those before."""
    return lambda listed: bid.lacks(listed.terms) != promise


def _promises(asked: GpuRequest) -> Iterable[tuple[ReclaimTerm, str]]:
    """Yield what owners promise for a reclaim, in order, with what a bid asks of each."""
    notice, fee, grace = (
        asked.notice_seconds_min,
        asked.reclaim_fee_ppm_min,
        asked.grace_seconds_min,
    )
    yield "notice", "" if notice is None else write_query(GpuRequest(notice_seconds_min=notice))
    yield "reclaim", "" if fee is None else write_query(GpuRequest(reclaim_fee_ppm_min=fee))
    yield "grace", "" if grace is None else write_query(GpuRequest(grace_seconds_min=grace))


def _well(pool: Pool, calendar: Calendar, funnel: list[Stage]) -> Pool:
    """Keep the GPUs that are not withheld: a step of the funnel, where any are."""
    if calendar.withheld:
        pool = [
            (listed, tuple(uuid for uuid in uuids if uuid not in calendar.withheld))
            for listed, uuids in pool
        ]
        funnel.append(Stage("health", _count(pool)))
    return pool


def _free(
    pool: Pool, bid: OpenBid, calendar: Calendar, earliest: int, *, apart: bool = False
) -> Pool:
    """Keep the GPUs that are free for long enough at some time.

    apart: while no other tenant is on a host that cannot keep the two apart.
    """

    def is_free(listed: Listed, uuid: str) -> bool:
        since = bid.earliest_on(listed.terms.host_id, earliest)
        spans: Iterable[tuple[int, int]]
        spans = listed.free(uuid, calendar, since=since, until=bid.deadline)
        if apart:
            spans = calendar.without_others(spans, listed.terms.host_id, bid.terms.tenant_id)
        return _long_enough(spans, bid, since)

    return [
        (listed, tuple(uuid for uuid in uuids if is_free(listed, uuid))) for listed, uuids in pool
    ]


def _has_window(listed: Listed, bid: OpenBid, earliest: int) -> bool:
    since = bid.earliest_on(listed.terms.host_id, earliest)
    return _long_enough(listed.windows(since, bid.deadline), bid, since)


def _long_enough(spans: Iterable[tuple[int, int]], bid: OpenBid, earliest: int) -> bool:
    return any(
        min(ends, bid.deadline) - max(starts, earliest) >= bid.duration for starts, ends in spans
    )


def _count(pool: Iterable[tuple[Listed, tuple[str, ...]]]) -> int:
    return len({uuid for _, uuids in pool for uuid in uuids})
