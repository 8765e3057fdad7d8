"""What made-up people want, by seeded dice: the bids of the demo."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from config.demo.cast import EVERY_UNIT, PLAYERS, Organisation, Unit
from ledger.domain import account_ids
from ledger.domain.ids import BidId
from ledger.domain.money import Rate, nanos_of
from ledger.eventstore.port import Meta
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import Patience, ServiceClass, Workload


@dataclass(frozen=True, slots=True)
class Taste:
    """One kind of demand.

    hours: the least and most that its work takes. limit: lowest and highest price per GPU-hour that
    is bid. waits: for how many hours it may wait for a start; 0: for a quarter of one, in the
    instant lane.
    """

    query: str
    gpus: tuple[int, ...]
    hours: tuple[float, float]
    limit: tuple[float, float]
    kind: str
    weight: int
    waits: float


BATCH = (
    Taste("gpu=H100", (2, 4, 4, 8), (4, 10), (1.6, 3.4), "training-7b", 6, waits=5),
    Taste("gpu=H100 nvlink", (8,), (3, 8), (2.1, 3.2), "training-13b", 1, waits=10),
    Taste("gpu=A100", (1, 2, 4), (3, 10), (0.9, 2.1), "training", 7, waits=0),
    Taste("gpu=A100,H100 memory>=40GiB", (1, 2, 2), (2, 6), (0.9, 2.4), "training", 4, waits=0),
    Taste("gpu=L40S", (2, 4, 4), (4, 10), (0.6, 1.5), "render", 8, waits=0),
)
"""Work that runs for hours; some of it may wait for the evening."""
SESSIONS = (
    Taste("gpu=H100", (1,), (0.5, 3), (1.6, 3.2), "interactive", 2, waits=0),
    Taste("gpu=A100", (1, 1, 2), (0.5, 4), (0.9, 2.2), "interactive", 3, waits=0),
    Taste("memory>=24GiB", (1,), (0.5, 3), (0.5, 1.6), "interactive", 3, waits=0),
    Taste("memory>=5GiB isolation=mps", (1,), (1, 4), (0.15, 0.4), "interactive", 3, waits=0),
)
"""People at a notebook: now, for a while, at a price."""
TASTES = BATCH + SESSIONS


def frugal(taste: Taste) -> Taste:
    """Return who pays half as much: the dearest offers stay free for whoever looks at the demo."""
    lowest, highest = taste.limit
    return replace(taste, limit=(min(lowest, 0.4 * highest), 0.5 * highest))


class Dice:
    """Draws bids. The same seed draws the same bids."""

    def __init__(self, seed: int, *, market: str, currency: str) -> None:
        self.random = random.Random(seed)
        self._market = market
        self._currency = currency

    def bid(
        self, *, now: datetime, tastes: Sequence[Taste] = TASTES, hours: float = 1.0
    ) -> tuple[BidTerms, Meta]:
        """Draw a bid placed at `now` by somebody. hours: how long an hour of its work takes."""
        organisation, unit = self.random.choice(EVERY_UNIT)
        taste = self.random.choices(tastes, weights=[taste.weight for taste in tastes])[0]
        seconds = int(self.random.uniform(*taste.hours) * hours * 3_600) // 60 * 60
        service: ServiceClass = self.random.choice(("on-demand", "on-demand", "interruptible"))
        return self.terms(
            organisation,
            unit,
            query=taste.query,
            gpus=self.random.choice(taste.gpus),
            seconds=max(60, seconds),
            limit=f"{self.random.uniform(*taste.limit):.2f}",
            kind=taste.kind,
            service_class=service,
            patience="patient" if taste.waits else "immediate",
            now=now,
            patience_seconds=int(taste.waits * 3_600) or 900,
        )

    def terms(
        self,
        organisation: Organisation,
        unit: Unit,
        *,
        query: str,
        gpus: int,
        seconds: int,
        limit: str,
        kind: str,
        now: datetime,
        service_class: ServiceClass = "on-demand",
        patience: Patience = "immediate",
        patience_seconds: int = 900,
        burst_allowed: bool = False,
    ) -> tuple[BidTerms, Meta]:
        """Return a bid of a unit, and who places it."""
        bid_id = BidId(UUID(int=self.random.getrandbits(128), version=4))
        [bidder, *_] = [
            player.user_id
            for owner, player in PLAYERS
            if owner is organisation and "consumer" in player.roles
        ]
        terms = BidTerms(
            bid_id=bid_id,
            tenant_id=organisation.tenant_id,
            subscriber_id=unit.subscriber_id,
            user_id=bidder,
            account_id=account_ids.funds_account(unit.subscriber_id, self._currency),
            market=self._market,
            request=read_query(query),
            gpus=gpus,
            placement="same-host",
            duration_seconds=seconds,
            earliest_start=now,
            deadline=now + timedelta(seconds=seconds + patience_seconds),
            limit=Rate(nanos_of(limit), self._currency),
            service_class=service_class,
            patience=patience,
            workload=Workload(kind=kind, command=("sleep", str(seconds * 2))),
            cost_centre=unit.cost_centre,
            burst_allowed=burst_allowed,
        )
        by = Meta(
            actor=f"user:{bidder}",
            tenant_id=organisation.tenant_id,
            command_id=UUID(int=bid_id.int),
        )
        return terms, by
