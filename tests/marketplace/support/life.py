"""A market lived at random in both lanes, with what was promised in it."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from ledger.domain.ids import BidId, LeaseId, TenantId
from marketplace.domain.facts.events import (
    LeaseClosed,
    ReclaimRequested,
    ServiceClass,
)
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


CLASSES: tuple[ServiceClass, ...] = ("reserved", "on-demand", "interruptible", "interruptible")


HOSTS = ("a", "b")


class Life:
    """A market to which anything happens. Each host offers all its GPUs for two days."""

    def __init__(self, random: Random) -> None:
        self.random, self.market = random, Market()
        self.words: list[str] = []
        for host in HOSTS:
            self.market.offer(
                host,
                gpus=random.randint(1, 2),
                at=random.choice((1, 1, 2)),
                windows=[(NOON, NOON + 48 * HOUR)],
                notice=random.choice((5, 30)) * MINUTE,
                cleaning=random.choice((0, 0, 10)) * MINUTE,
            )

    def act(self) -> None:
        self.random.choices((self.bid, self.end, self.reclaim, self.wait), (8, 3, 1, 4))[0]()
        self.market.run()

    def bid(self) -> None:
        rng, market = self.random, self.market
        self.words.append(f"b{len(self.words)}")
        start = market.now + rng.choice((0, 0, 0, 1, 3)) * HOUR
        hours = rng.choice((0.5, 1, 4, 12))
        market.bid(
            self.words[-1],
            gpus=rng.choice((1, 1, 2, 3)),
            hours=hours,
            at=rng.choice((1, 2, 4, 9)),
            start=start,
            deadline=start + hours * HOUR + rng.choice((0, 1, 2, 8)) * HOUR,
            gang=rng.random() < 0.4,
            patience=rng.choice(("immediate", "patient")),
            service_class=rng.choice(CLASSES),
            tenant=self.whose(),
        )

    def whose(self) -> TenantId | None:
        """Return who bids; None: each time somebody else."""
        return None

    def fill(self) -> None:
        """Let interruptible work take all there is, for long and for little."""
        for _ in range(4):
            self.words.append(f"b{len(self.words)}")
            self.market.bid(self.words[-1], hours=6, at=2, service_class="interruptible")
        self.market.run()
        self.market.wait(minutes=self.random.choice((1, 45)))

    def running(self) -> list[LeaseId]:
        over = {e.event.lease_id for e in self.market.events() if isinstance(e.event, LeaseClosed)}
        return [
            each.lease_id
            for each in self.market.grants().values()
            if each.lease_id not in over and each.window.ends_at > self.market.now
        ]

    def end(self) -> None:
        if leases := self.running():
            word = {g.lease_id: g.bid_id for g in self.market.grants().values()}
            lease_id = self.random.choice(leases)
            names = {BidId(named(f"bid {each}")): each for each in self.words}
            self.market.close(names[word[lease_id]])

    def reclaim(self) -> None:
        if leases := self.running():
            lease_id = self.random.choice(leases)
            granted = next(g for g in self.market.grants().values() if g.lease_id == lease_id)
            stop_at = self.market.now + granted.shares[0].notice_seconds * timedelta(seconds=1)
            self.market.put(
                f"lease-{lease_id}",
                ReclaimRequested(
                    lease_id=lease_id,
                    owner_id=TenantId(granted.shares[0].owner_id),
                    stop_at=stop_at,
                    at=self.market.now,
                ),
            )

    def wait(self) -> None:
        self.market.wait(minutes=self.random.choice((1, 2, 20, 90)))
