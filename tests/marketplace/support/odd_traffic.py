"""Traffic with bids of every kind, for two books to decide on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import time, timedelta
from random import Random
from uuid import uuid5

from ledger.domain.event import Event
from ledger.domain.ids import TenantId
from ledger.domain.span import Window
from listings.domain.events import Gpu, OfferPublished, WeeklyRule
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import BidCancelled, BidPlaced, LeaseClosed
from tests.benchmarks.instant import NAMES, NOON, Traffic

BIDS, OFFERS = 80, 8


ODD = 0.2
"""The share of bids that more is to be looked at for than whether GPUs are free."""


@dataclass
class OddTraffic(Traffic):
    """As the benchmark's, with odd bids and offers, prices in few steps, times of any second."""

    before: OfferPublished | None = None
    owners_bid: bool = True

    def offer(self) -> OfferPublished:
        """Return an offer: of a new host, or sometimes of more GPUs of the one before."""
        rng, offer = self.random, super().offer()
        offer = replace(offer, cleaning_seconds=rng.choice((0, 0, 1, 90, 1_800)))
        if rng.random() < 0.4:
            offer = replace(offer, windows=offer.windows[: rng.randrange(2)], weekly=self._weekly())
        elif rng.random() < 0.4:  # cleaning may reach from one window into the next
            first = offer.windows[-1]
            first = replace(first, ends_at=first.starts_at + timedelta(hours=rng.randint(1, 4)))
            opens = first.ends_at + timedelta(minutes=rng.choice((1, 20)))
            again = Window(opens, opens + timedelta(hours=rng.randint(4, 40)))
            offer = replace(offer, windows=(first, again), cleaning_seconds=1_800)
        if rng.random() < 0.5:
            offer = replace(offer, gpus=self._joined(offer.gpus))
        if self.before is not None and rng.random() < 0.3:
            of, floor = self.before, offer.floor
            if rng.random() < 0.5:
                floor = of.floor
            offer = replace(offer, host_id=of.host_id, region=of.region, floor=floor)
        self.before = offer
        return offer

    def _weekly(self) -> WeeklyRule:
        rng = self.random
        days = tuple(sorted(rng.sample(range(7), rng.choice((2, 5, 7, 7)))))
        since = time(rng.randrange(24))
        until = since if rng.random() < 0.3 else time(rng.randrange(24))
        return WeeklyRule("Europe/Berlin", days, since, until, NOON.date())

    def _joined(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        rng = self.random
        size, words = rng.choice((2, 4)), rng.choices(("a", "b", "c", None), k=3)
        groups = (
            [rng.choice(words) for _ in gpus]
            if rng.random() < 0.3
            else [f"{'dcba'[place // size]}" for place in range(len(gpus))]
        )
        return tuple(
            replace(gpu, nvlink_group=group) for gpu, group in zip(gpus, groups, strict=True)
        )

    def bid(self, worth: float = 1.0) -> BidPlaced:
        """Return a new bid."""
        rng, bid = self.random, super().bid(worth)
        shift = timedelta(seconds=rng.choice((0, 0, 60, 1_801)), microseconds=rng.choice((0, 1)))
        shift += timedelta(days=rng.choice((0, 0, 0, 0, 20)))
        cents = 10**7
        limit = bid.limit.nanos_per_gpu_hour // cents * cents or cents
        bid = replace(
            bid,
            limit=replace(bid.limit, nanos_per_gpu_hour=limit),
            gpus=rng.choice((bid.gpus, rng.randint(1, 8))),
            earliest_start=bid.earliest_start + shift,
            deadline=bid.deadline + shift + timedelta(days=rng.choice((0, 0, 0, 2, 15, 40))),
        )
        if rng.random() > ODD:
            return bid
        match rng.randrange(5):
            case 0:
                return replace(bid, placement="any-hosts")
            case 1:
                return replace(bid, gpus_min=1, duration_min_seconds=1_800)
            case 2:
                return replace(bid, request=replace(bid.request, nvlink=True))
            case 3:
                return replace(bid, good_until=bid.deadline - timedelta(hours=1))
            case _ if self.owners_bid:
                return replace(bid, tenant_id=TenantId(uuid5(NAMES, "owner")))
            case _:
                return bid


def facts(random: Random, book: Book) -> Iterator[Event]:
    """Yield offers that come to many waiting bids, with some bids and leases that end."""
    traffic = OddTraffic(random, owners_bid=random.random() < 0.3)
    for _ in range(BIDS):
        yield traffic.bid()
    for _ in range(OFFERS):
        yield traffic.offer()
        for _ in range(3):
            yield traffic.bid()
        if book.bids:
            gone = random.choice(sorted(book.bids))
            yield BidCancelled(bid_id=gone, at=book.bids[gone].terms.at)
        if book.held:
            lease_id = random.choice(sorted(book.held))
            ended = book.held[lease_id].granted
            at = ended.window.starts_at + (ended.window.ends_at - ended.window.starts_at) / 3
            yield LeaseClosed(
                lease_id=lease_id,
                market=book.market,
                reason=101,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=at,
            )
