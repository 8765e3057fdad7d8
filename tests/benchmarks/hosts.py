"""The instant lane where hosts are as owners list them: by the week, in parts, with linked GPUs.

As `instant`, but a third of the offers come back every day or on workdays, a fourth are of more
GPUs of the host before at another price, and the GPUs of a third are joined by NVLink in fours.
One bid in ten may be served up to three weeks later.
"""

from __future__ import annotations

import random
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import time, timedelta

from listings.domain.events import OfferPublished, WeeklyRule
from marketplace.domain.facts.events import BidPlaced
from tests.benchmarks.figures import Figure
from tests.benchmarks.instant import EVENTS, NOON, RESTING, SEED, WINDOWS, Traffic, filled, timed

LATER = timedelta(days=21)


@dataclass
class OwnersTraffic(Traffic):
    """Offers by the week, in parts and linked. before: the last one that is its host's only one."""

    before: OfferPublished | None = None

    def offer(self) -> OfferPublished:
        """Return an offer of a new host, or of more GPUs of the one before."""
        rng, offer = self.random, super().offer()
        of, self.before = self.before, offer
        if of is not None and rng.random() < 0.25:
            self.before = None
            gpus = tuple([replace(gpu, uuid=f"{gpu.uuid}-more") for gpu in of.gpus])
            floor = replace(of.floor, nanos_per_gpu_hour=of.floor.nanos_per_gpu_hour * 5 // 4)
            offer = replace(offer, host_id=of.host_id, region=of.region, gpus=gpus, floor=floor)
        if rng.random() < 1 / 3:
            days = tuple(range(rng.choice((5, 7))))
            since = time(rng.randrange(17, 22))
            rule = WeeklyRule("Europe/Berlin", days, since, time(8), NOON.date())
            offer = replace(offer, windows=(), weekly=rule)
        if rng.random() < 1 / 3:
            linked = enumerate(offer.gpus)
            gpus = tuple([replace(gpu, nvlink_group=f"{at // 4}") for at, gpu in linked])
            offer = replace(offer, gpus=gpus)
        return offer

    def bid(self, worth: float = 1.0) -> BidPlaced:
        """Return a new bid."""
        bid = super().bid(worth)
        if self.random.random() < 0.1:
            bid = replace(bid, deadline=bid.deadline + LATER * self.random.random())
        return bid


def run() -> Iterator[Figure]:
    """Fill a market of such hosts, then time every fact that comes on top."""
    traffic = OwnersTraffic(random.Random(SEED))
    started = clock.perf_counter()
    lane = filled(WINDOWS, RESTING, traffic)
    yield Figure("bids waiting, when the clock starts", len(lane.book.bids), "bids")
    yield Figure("filling the book", clock.perf_counter() - started, "s")
    yield from timed(lane, traffic, EVENTS, goal="≥ 6,000")
