"""A past round is cleared again under other rules, from its place in the log."""

from __future__ import annotations

from uuid import uuid4

import pytest

from marketplace.domain.clearing.fills import Rules
from marketplace.queries.market import RoundUnknown
from marketplace.replay import round as replay
from marketplace.replay.under_other_rules import (
    Otherwise,
    RoundOutOfReach,
    RulesUnreadable,
    clear_otherwise,
    read_rules,
)
from tests.marketplace.support.market import MARKET, Market
from tests.marketplace.support.past_rounds import busy, rounds


def otherwise(market: Market, rules: Rules) -> dict[str, Otherwise]:
    return {
        f"{number} {each.lane}": clear_otherwise(
            market.store, market=MARKET, round_id=each.round_id, rules=rules
        )
        for number, each in enumerate(rounds(market))
    }


def test_under_the_present_rules_it_comes_to_what_was_recorded() -> None:
    market = busy(Market())

    found = otherwise(market, Rules())

    assert all(each.otherwise == each.recorded for each in found.values())
    assert any(each.recorded.welfare_nanos for each in found.values())


@pytest.mark.parametrize("price", ["floor", "midpoint", "limit"])
def test_the_price_rule_divides_what_the_same_grants_are_worth(price: str) -> None:
    market = busy(Market())

    for each in otherwise(market, read_rules(price, "yes")).values():
        was, then = each.recorded, each.otherwise
        assert (each.new, each.lost) == (0, 0)
        assert (then.grants, then.welfare_nanos) == (was.grants, was.welfare_nanos)
        assert then.bidders_nanos + then.owners_nanos == then.welfare_nanos
        if price == "limit":
            assert then.bidders_nanos == 0
        if price == "midpoint":
            assert then.bidders_nanos == then.owners_nanos
        if price == "floor":
            assert then.owners_nanos == 0


def test_without_preemption_nobody_is_interrupted() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("weak", gpus=1, hours=9, at=2, service_class="interruptible")
    market.run()
    market.wait(hours=1)
    market.bid("firm", gpus=1, hours=2, at=9, deadline=market.now.replace(hour=16))
    market.run()
    last = rounds(market)[-1]

    found = clear_otherwise(
        market.store, market=MARKET, round_id=last.round_id, rules=Rules(preemption=False)
    )

    assert found.recorded.interrupted == 1, "the firm bid took its place"
    assert (found.otherwise.interrupted, found.otherwise.grants) == (0, 0)
    assert (found.new, found.lost) == (0, 1)


def test_it_writes_nothing_and_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    market = busy(Market())
    head = market.store.head()
    first = rounds(market)[0].round_id
    otherwise(market, Rules("limit"))
    assert market.store.head() == head

    with pytest.raises(RoundUnknown):
        clear_otherwise(market.store, market=MARKET, round_id=uuid4(), rules=Rules())
    monkeypatch.setattr(replay, "FACTS_MAX", 0)
    with pytest.raises(RoundOutOfReach):
        clear_otherwise(market.store, market=MARKET, round_id=first, rules=Rules())
    for wrong in (("dice", "yes"), ("floor", "maybe")):
        with pytest.raises(RulesUnreadable):
            read_rules(*wrong)
