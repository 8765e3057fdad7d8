"""A window is the same however far windows are worked out: a replay finds what was found."""

from __future__ import annotations

from datetime import datetime, time, timedelta

import pytest

from ledger.domain.span import Window
from listings.domain.events import OfferPublished, WeeklyRule
from marketplace.domain.facts.events import RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
ALWAYS = tuple(range(7))

ENDS = WeeklyRule("UTC", ALWAYS, time(0), time(0), NOON.date(), (NOON + 30 * DAY).date())
"""All day, every day, for thirty days."""
BEGINS = WeeklyRule("UTC", ALWAYS, time(0), time(0), (NOON + 100 * DAY).date())

CASES = [
    (ENDS, (NOON + 40 * DAY, NOON + 41 * DAY), datetime(2026, 2, 5, tzinfo=NOON.tzinfo)),
    (BEGINS, (NOON, NOON + 60 * DAY), NOON + 60 * DAY),
]
IDS = ["a rule that is over before a window", "a rule that begins after a window"]


def listed(rule: WeeklyRule, window: tuple[datetime, datetime]) -> Listed:
    market = Market()
    market.offer("a", windows=[window], weekly=rule)
    [offer] = [each.event for each in market.events() if isinstance(each.event, OfferPublished)]
    return Listed(offer, 1, 0)


@pytest.mark.parametrize(("rule", "window", "ends"), CASES, ids=IDS)
def test_an_unbroken_rule_joins_only_what_it_touches(
    rule: WeeklyRule, window: tuple[datetime, datetime], ends: datetime
) -> None:
    now, hour, month = from_above(NOON), 3_600_000, 28 * 24 * 3_600_000

    [soon, *_] = listed(rule, window).windows(now, now + hour)
    [far, *_] = listed(rule, window).windows(now, now + month)

    assert soon[1] == far[1] == from_above(ends)


@pytest.mark.parametrize(
    ("rule", "window", "other"),
    [
        (ENDS, (NOON + 40 * DAY, NOON + 41 * DAY), Window(NOON, NOON + 35 * DAY)),
        (BEGINS, (NOON, NOON + 36 * DAY), Window(NOON, NOON + 70 * DAY)),
    ],
    ids=IDS,
)
def test_rounds_replay_although_somebody_asked_far_ahead(
    rule: WeeklyRule, window: tuple[datetime, datetime], other: Window
) -> None:
    """Two offers of a host at one floor: the tighter gap is the rule's, whoever asked before."""
    market = Market()
    market.offer("x", host="h", gpus=4, only=[0, 1], weekly=rule, windows=[window])
    market.offer(
        "y", host="h", gpus=4, only=[2, 3], windows=[(other.starts_at, other.ends_at)]
    )  # fmt: skip
    start = NOON + 27 * DAY
    market.bid("far", hours=1, at=2, start=start, deadline=start + 2 * HOUR)
    market.run()
    market.close("far")
    market.run()
    market.bid("z", hours=1)
    market.run()

    granted = market.grant("z")
    assert granted is not None and granted.shares[0].gpu_uuids == ("h:0",)
    rounds = [each.event for each in market.decisions() if isinstance(each.event, RoundCleared)]
    outcomes = [
        replay_round(market.store, market=MARKET, round_id=each.round_id).outcome for each in rounds
    ]
    assert outcomes == ["identical"] * len(rounds) and len(rounds) >= 2
