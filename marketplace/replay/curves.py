"""Supply and demand as a round found them, by GPU model: the curves of its page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.queries.market import Goods, Level

DAY_MILLIS = 24 * MILLIS_PER_HOUR


@dataclass(slots=True)
class Curve:
    """One model in one round.

    supply: GPUs by floor, lowest first, that are free at some time between the round and the
    last deadline of its bids. demand: GPUs that its bids want and this model can serve, by
    limit, highest first; a bid that several models can serve counts in each. Prices are those
    of the round's grants of the model, None where there are none; the mean weighs GPU-time.
    """

    gpu_model: str
    currency: str
    supply: list[Level] = field(default_factory=list)
    demand: list[Level] = field(default_factory=list)
    granted_gpus: int = 0
    low_nanos: int | None = None
    mean_nanos: int | None = None
    high_nanos: int | None = None


def curves_of(
    book: Book, bids: Sequence[OpenBid], granted: Iterable[LeaseGranted], *, now: int
) -> list[Curve]:
    """Return the curves of a round, in order of model, from the book before it.

    bids: those that the round looked at. now: when it was cleared, in milliseconds.
    """
    until = max((bid.deadline for bid in bids), default=now + DAY_MILLIS)
    demand = _demand(book, bids)
    supply = _supply(book, now, max(until, now + 1))
    grants: dict[Goods, list[LeaseGranted]] = defaultdict(list)
    for grant in (each for each in granted if not each.own):
        for model in grant.gpu_model.split("+"):
            grants[model, grant.price.currency].append(grant)
    curves = []
    for key in sorted({*demand, *grants}):
        curve = Curve(
            *key,
            supply=[Level(*level) for level in sorted(supply[key].items())],
            demand=[Level(*level) for level in sorted(demand[key].items(), reverse=True)],
        )
        _add_prices(curve, grants[key])
        curves.append(curve)
    return curves


def _demand(book: Book, bids: Iterable[OpenBid]) -> dict[Goods, dict[int, int]]:
    wanted: dict[Goods, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in bids:
        models = {model for entry in book.entries(bid.shape) for model in entry.models}
        for model in models:
            wanted[model, bid.shape.currency][bid.limit] += bid.gpus
    return wanted


def _supply(book: Book, since: int, until: int) -> dict[Goods, dict[int, int]]:
    free: dict[Goods, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for listed in book.offers.values():
        if listed.paused or listed.terms.reserved_for is not None:
            continue
        for gpu in listed.terms.gpus:
            spans = listed.free(gpu.uuid, book.calendar, since=since, until=until)
            if any(opens < until and since < closes for opens, closes in spans):
                free[gpu.model, listed.terms.floor.currency][listed.floor] += 1
    return free


def _add_prices(curve: Curve, grants: Sequence[LeaseGranted]) -> None:
    if not grants:
        return
    prices = [grant.price.nanos_per_gpu_hour for grant in grants]
    gpus = [sum(len(share.gpu_uuids) for share in grant.shares) for grant in grants]
    times = [grant.window.millis * count for grant, count in zip(grants, gpus, strict=True)]
    curve.granted_gpus = sum(gpus)
    curve.low_nanos, curve.high_nanos = min(prices), max(prices)
    value = sum(price * time for price, time in zip(prices, times, strict=True))
    curve.mean_nanos = value // sum(times)
