"""Whatever happens in a market with quotas: nobody waits for what is free and allowed."""

from __future__ import annotations

from random import Random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ledger.domain.ids import SubscriberId, TenantId
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import CohortPlaced, QuotaSet, UnitPlaced
from tests.marketplace.support.life import Life
from tests.marketplace.support.market import MARKET, named
from tests.marketplace.support.policies import limit
from tests.marketplace.support.rounds import book_of

UNITS = ("red", "blue", "green")


class Governed(Life):
    """The same market with three units in one cohort, with any quotas, and perhaps a limit."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        market, at = self.market, self.market.now
        policies = f"governance-{MARKET}"
        market.put(
            policies,
            CohortPlaced(market=MARKET, cohort="lab", parent=None, tenant_id=None, at=at),
        )
        for word in UNITS:
            unit = SubscriberId(named(f"tenant {word}"))
            placed = UnitPlaced(
                market=MARKET, subscriber_id=unit, tenant_id=TenantId(unit), cohort="lab", at=at
            )
            quota = QuotaSet(
                market=MARKET,
                node=str(unit),
                gpu_class="H100",
                nominal=random.choice((0, 1, 2)),
                borrowing=random.choice((None, 0, 1)),
                lending=random.choice((None, 0)),
                at=at,
            )
            market.put(policies, placed)
            market.put(policies, quota)
        if random.random() < 0.3:
            market.put(policies, limit("subscriber", gpus=random.choice((1, 2, 3))))

    def whose(self) -> TenantId:
        return TenantId(named(f"tenant {self.random.choice(UNITS)}"))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 32))
@example(seed=538_915_333)  # what a cut lease left over
def test_nobody_waits_for_what_is_free_and_allowed(seed: int) -> None:
    life = Governed(Random(seed))
    life.fill()
    for _ in range(20):
        life.act()
    life.market.wait(minutes=2)
    life.market.run()
    life.market.run()
    book, now = book_of(life.market), from_above(life.market.now)
    explained = [book.explain(bid, now=now) for bid in book.bids.values()]
    kept_out = sum(each.reason == "quota" for each in explained)

    assert [each for each in explained if each.placement is not None] == []
    event(f"waits for quota: {min(kept_out, 1)}")
