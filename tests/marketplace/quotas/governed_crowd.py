"""People of three business units, whose quotas and limits change all the time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import Position
from listings.domain.events import Division
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import BidPlaced, GpuRequest
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    CountingSet,
    GovernanceEvent,
    GuaranteePeriodSet,
    HalfLifeSet,
    LeastRunSet,
    LimitSet,
    OverrideLifted,
    QuotaOverridden,
    QuotaRequested,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
    UseAllowed,
)
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.random_market import Crowd

UNITS = tuple(TenantId(named(f"unit {word}")) for word in ("red", "blue", "grey"))
NODES = ("lab", "floor", *map(str, UNITS))


class UnitsMarket(Market):
    """Every bid is a unit's, and some are patient."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def put(self, stream: str, event: Event) -> Position:
        """Record a fact."""
        if isinstance(event, BidPlaced):
            unit = self._random.choice(UNITS)
            event = replace(
                event,
                tenant_id=unit,
                subscriber_id=SubscriberId(unit),
                patience=self._random.choice(("immediate", "immediate", "patient")),
            )
            if self._random.random() < 0.2:
                profile = self._random.choice(("1g.10gb", "1g.20gb", "3g.40gb"))
                request = GpuRequest(models=(f"H100-{profile}",))
                event = replace(event, request=request, placement="any-hosts")
        return super().put(stream, event)


class GovernedCrowd(Crowd):
    """A crowd with an operator in it."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, UnitsMarket(random))
        first: tuple[GovernanceEvent, ...] = (
            CohortPlaced(market=MARKET, cohort="lab", parent=None, tenant_id=None, at=self.at),
            CohortPlaced(market=MARKET, cohort="floor", parent="lab", tenant_id=None, at=self.at),
            *(
                UnitPlaced(
                    market=MARKET,
                    subscriber_id=SubscriberId(unit),
                    tenant_id=unit,
                    cohort=cohort,
                    at=self.at,
                )
                for unit, cohort in zip(UNITS, ("lab", "floor", "floor"), strict=True)
            ),
        )
        for event in first:
            self.say(event)

    @property
    def at(self):  # type: ignore[no-untyped-def]
        """Return the moment."""
        return self.market.now

    def _offer(self, book: Book) -> None:
        if self.random.random() < 0.7:
            super()._offer(book)
            return
        start = self.market.now.replace(minute=0, second=0)
        profiles = self.random.choice((("1g.10gb",) * 7, ("3g.40gb", "1g.10gb", "1g.20gb")))
        self.market.offer(
            self._word(), host=f"mig {self.words}", region="eu-west",
            windows=((start, start + timedelta(hours=self.random.randint(2, 9))),),
            division=Division("mig", profiles=profiles), at=self.random.choice((0.2, 0.3)),
        )  # fmt: skip

    def say(self, event: GovernanceEvent) -> None:
        """Set a policy."""
        self.market.put(f"governance-{MARKET}", event)

    def _change(self, book: Book) -> None:
        if self.random.random() < 0.5:
            super()._change(book)
        else:
            self.say(self._policy(book))

    def _policy(self, book: Book) -> GovernanceEvent:
        rng = self.random
        few = (None, 0, 1, 2, 4)
        gpu_class = rng.choice(("H100", "H100", "any", "any", "H100-80GB-1g.10gb"))
        node = rng.choice(NODES)
        nominal, borrowing, lending = rng.choice(few), rng.choice(few), rng.choice(few)
        match rng.randint(0, 7):
            case 0 | 1:
                return QuotaSet(
                    market=MARKET, node=node, gpu_class=gpu_class, nominal=nominal,
                    borrowing=borrowing, lending=lending, at=self.at,
                    gpu_hours=rng.choice((None, None, 3)),
                )  # fmt: skip
            case 2:
                starts_at = self.at + timedelta(hours=rng.randint(0, 5))
                return QuotaOverridden(
                    market=MARKET, override_id=UUID(int=rng.randint(1, 3)), node=node,
                    gpu_class=gpu_class, nominal=nominal or 0, borrowing=borrowing,
                    lending=lending, starts_at=starts_at,
                    ends_at=starts_at + timedelta(hours=rng.randint(1, 9)), request_id=None,
                    at=self.at,
                )  # fmt: skip
            case 3:
                return OverrideLifted(
                    market=MARKET, override_id=UUID(int=rng.randint(1, 3)), at=self.at
                )
            case 4 | 5:
                return LimitSet(
                    market=MARKET, scope=rng.choice(("bid", "subscriber", "tenant")),
                    subject=rng.choice((None, None, *UNITS)), tenant_id=None,
                    gpus=rng.choice((None, 3, 6)), memory_mib=rng.choice((None, 400_000)),
                    gpu_hours=rng.choice((None, 20)),
                    money=rng.choice((None, Money(30 * 10**9))),
                    period=rng.choice(("day", "week", "month")), at=self.at,
                )  # fmt: skip
            case 6:
                return rng.choice(
                    (
                        ShareWeightSet(
                            market=MARKET, node=node, weight_ppm=rng.choice((0, 10**6, 3 * 10**6)),
                            at=self.at,
                        ),
                        HalfLifeSet(market=MARKET, seconds=rng.choice((3_600, 86_400)), at=self.at),
                        LeastRunSet(
                            market=MARKET, seconds=rng.choice((0, 60, 7_200)), at=self.at,
                            gpu_class=(of := rng.choice((None, "H100", "H100-80GB-1g.10gb"))),
                            lifted=of is not None and rng.random() < 0.3,
                        ),
                        CountingSet(
                            market=MARKET, counts=rng.choice(("whole", "parts", "parts")),
                            at=self.at,
                        ),
                        GuaranteePeriodSet(
                            market=MARKET, seconds=43_200, starts_at=self.at, at=self.at
                        ),
                    )
                )  # fmt: skip
            case _:
                return rng.choice(
                    (
                        UseAllowed(
                            market=MARKET, who=rng.choice((None, *NODES)), gpu_class=gpu_class,
                            what=rng.choice(("lease", "borrow")), allowed=rng.random() < 0.7,
                            at=self.at,
                        ),
                        QuotaRequested(
                            market=MARKET, request_id=UUID(int=rng.randint(1, 9)),
                            tenant_id=UNITS[0], subscriber_id=SubscriberId(UNITS[0]), user_id=None,
                            gpu_class=gpu_class, nominal=4, starts_at=self.at,
                            ends_at=self.at + timedelta(days=1), why="", at=self.at,
                            expires_at=self.at + timedelta(days=1),
                        ),
                    )
                )  # fmt: skip
