"""What a stretch of a market's log came to: grants, use, worth, waits, fairness. From facts alone.

The same function measures what was recorded and what a run of the lab made of it, so that the two
can be put side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.domain.ids import TenantId
from ledger.domain.money import MILLIS_PER_HOUR
from listings.domain.windows import windows_of
from marketplace.domain.facts.instants import ONE_MILLI
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.lab.cohorts import parts_of_cohorts
from marketplace.lab.tally import LeaseTold, OfferTold, Tally

PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """A stretch of the log in numbers. Money in nano-units, of one currency; ratios in ppm.

    gpu_millis: of leases granted in the stretch, whole. offered, used: GPU-time of local GPUs
    within the stretch, by whatever lease. welfare: what bidders would have paid at most less what
    owners ask at least; surplus, owners and fee share it together with the floors. wait: from when
    a lease was wanted to its start. jain: of the share of the GPU-time asked for that each tenant
    got; a million is perfectly even. jain_cohorts: of what each outermost cohort got of its part by
    weight. interrupted: leases cut for others. None where there is nothing to take it of.
    """

    bids: int
    grants: int
    gpu_millis: int
    offered_millis: int
    used_millis: int
    utilisation_ppm: int | None
    welfare_nanos: int
    owners_nanos: int
    surplus_nanos: int
    fee_nanos: int
    wait_mean_seconds: int | None
    wait_p95_seconds: int | None
    jain_ppm: int | None
    burst_nanos: int
    interrupted: int = 0
    jain_cohorts_ppm: int | None = None


def figures_of(
    tally: Tally,
    *,
    currency: str,
    since: datetime,
    until: datetime,
    fee_ppm: int,
    policies: Policies | None = None,
) -> Figures:
    """Measure the stretch of a log that was taken in.

    policies: by whose cohorts and weights it is told whether cohorts got what was theirs.
    """
    made = tally.made
    offered = _offered(tally.offers.values(), since, until)
    used = sum(_within(lease, since, until) for lease in tally.leases.values())
    waits = sorted(lease.wait for lease in made if lease.bid is not None)
    return Figures(
        bids=sum(bid.inside for bid in tally.bids.values()),
        grants=len(made),
        gpu_millis=sum(lease.gpus * lease.millis for lease in made),
        offered_millis=offered,
        used_millis=used,
        utilisation_ppm=used * PPM // offered if offered else None,
        **_money([lease for lease in made if lease.granted.price.currency == currency], fee_ppm),
        wait_mean_seconds=sum(waits) // len(waits) if waits else None,
        wait_p95_seconds=waits[-(-len(waits) * 95 // 100) - 1] if waits else None,
        jain_ppm=_jain(tally, made),
        interrupted=tally.interrupted,
        jain_cohorts_ppm=_evenness(parts_of_cohorts(tally, made, policies)),
    )


def _money(made: Sequence[LeaseTold], fee_ppm: int) -> dict[str, int]:
    paid = fee = welfare = surplus = burst = 0
    for lease in (each for each in made if not each.granted.own):
        price = lease.granted.price.nanos_per_gpu_hour
        cost = price * lease.gpus * lease.millis // MILLIS_PER_HOUR
        paid += cost
        fee += cost * fee_ppm // PPM
        limit = price if lease.bid is None else lease.bid.limit
        welfare += (limit * lease.gpus - lease.floors) * lease.millis // MILLIS_PER_HOUR
        surplus += (limit - price) * lease.gpus * lease.millis // MILLIS_PER_HOUR
        if any(share.source == "burst" for share in lease.granted.shares):
            burst += cost
    return {
        "welfare_nanos": welfare,
        "owners_nanos": paid - fee,
        "surplus_nanos": surplus,
        "fee_nanos": fee,
        "burst_nanos": burst,
    }


def _within(lease: LeaseTold, since: datetime, until: datetime) -> int:
    """Return the GPU-time of its local GPUs that lies in the stretch."""
    starts, ends = max(lease.granted.window.starts_at, since), min(lease.ends, until)
    local = sum(len(each.gpu_uuids) for each in lease.granted.shares if each.source == "local")
    return local * max(0, (ends - starts) // ONE_MILLI)


def _offered(offers: Iterable[OfferTold], since: datetime, until: datetime) -> int:
    """Return the GPU-time that was on offer, each GPU counted once at any instant."""
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for offer in offers:
        if offer.published.source == "burst":
            continue
        windows = windows_of(offer.published, since=since, until=until)
        for live_from, live_until in offer.live:
            starts, ends = max(live_from, since), min(live_until or until, until)
            found = [
                (max(window.starts_at, starts), min(window.ends_at, ends)) for window in windows
            ]
            for gpu in offer.published.gpus:
                spans[gpu.uuid] += [span for span in found if span[0] < span[1]]
    return sum(_union(sorted(found)) for found in spans.values())


def _union(spans: Iterable[tuple[datetime, datetime]]) -> int:
    total, reached = 0, None
    for starts, ends in spans:
        if reached is not None and starts < reached:
            starts = reached
        if starts < ends:
            total += (ends - starts) // ONE_MILLI
            reached = ends
    return total


def _jain(tally: Tally, made: Iterable[LeaseTold]) -> int | None:
    asked: dict[TenantId, int] = defaultdict(int)
    for bid in tally.bids.values():
        if bid.inside:
            asked[bid.placed.tenant_id] += bid.placed.gpus * bid.placed.duration_seconds * 1000
    got: dict[TenantId, int] = defaultdict(int)
    for lease in made:
        if lease.bid is not None and lease.bid.inside:
            got[lease.bid.placed.tenant_id] += lease.gpus * lease.granted.window.millis
    return _evenness([got[tenant] / millis for tenant, millis in asked.items()])


def _evenness(shares: Sequence[float]) -> int | None:
    """Return Jain's index; None where nobody has anything."""
    squares = sum(share * share for share in shares)
    return round(sum(shares) ** 2 * PPM / (len(shares) * squares)) if squares else None
