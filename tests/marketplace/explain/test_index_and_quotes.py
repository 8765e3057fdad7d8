"""The price index of each model and hour, and what GPUs would cost now, tomorrow, this week."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT
from ledger.eventstore.memory import MemoryStore
from marketplace.models.rounds import PriceRow
from marketplace.queries.market import Within, depth, prices
from marketplace.queries.price_index import IndexPoint, price_index
from marketplace.queries.quotes import GPUS, LENGTHS, STARTS, WindowQuote, window_quotes
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market, rate

HOUR = timedelta(hours=1)


def traded(hour: datetime, price: int, gpu_hours: int, model: str = "H100-80GB") -> None:
    nanos = price * NANOS_PER_UNIT
    PriceRow.objects.create(
        key=f"{model}{hour}", market=MARKET, gpu_model=model, currency="USD", hour=hour, trades=1,
        gpus=1, gpu_millis=gpu_hours * MILLIS_PER_HOUR, value_nanos=nanos * gpu_hours,
        low_nanos=nanos, high_nanos=nanos, last_nanos=nanos,
    )  # fmt: skip


def index(hours: int, until: datetime, model: str | None = None) -> list[IndexPoint]:
    return price_index(
        market=MARKET, gpu_model=model, since=until - timedelta(hours=hours), until=until
    )


@pytest.mark.django_db
def test_the_index_weighs_by_time_and_halves_in_six_hours() -> None:
    traded(NOON - 6 * HOUR, price=1, gpu_hours=4)
    traded(NOON, price=4, gpu_hours=2)

    found = {point.hour: point for point in index(7, NOON + HOUR)}

    assert found[NOON - HOUR].index_nanos == NANOS_PER_UNIT
    assert found[NOON].index_nanos == (1 * 2 + 4 * 2) * NANOS_PER_UNIT // 4


def test_depth_is_told_for_now_a_day_and_a_week() -> None:
    market = Market()
    market.offer("now", gpus=1, at=3, windows=[(market.now, market.now + 2 * HOUR)])
    market.offer("day", gpus=2, at=2, windows=[(market.now + 9 * HOUR, market.now + 12 * HOUR)])
    market.offer("week", gpus=4, at=1, windows=[(market.now + 60 * HOUR, market.now + 90 * HOUR)])
    market.bid("later", gpus=8, at=1, start=market.now + 30 * HOUR)
    market.run()

    def told(within: Within) -> tuple[list[tuple[int, int]], int]:
        (found,) = depth(
            market.store, market=MARKET, gpu_model="H100-80GB", now=market.now, within=within
        )
        asks = [(each.price_nanos // NANOS_PER_UNIT, each.gpus) for each in found.asks]
        return asks, sum(each.gpus for each in found.bids)

    assert told("now") == ([(3, 1)], 8)
    assert told("day") == ([(2, 2), (3, 1)], 0)
    assert told("week") == ([(1, 4), (2, 2), (3, 1)], 8)


@pytest.mark.django_db
def test_trades_at_one_price_have_that_mean_and_index_however_short_they_are() -> None:
    row = PriceRow.objects.create(
        key="short", market=MARKET, gpu_model="A100", currency="USD", hour=NOON, trades=2, gpus=2,
        gpu_millis=7_001, value_nanos=2 * (800_000_000 * 3_500 // MILLIS_PER_HOUR),
        low_nanos=800_000_000, high_nanos=800_000_000, last_nanos=800_000_000,
    )  # fmt: skip

    (hour,) = prices(market=MARKET, gpu_model="A100", since=NOON, until=NOON + HOUR)

    assert row.value_nanos * MILLIS_PER_HOUR // row.gpu_millis < row.low_nanos
    assert hour.mean_nanos == 800_000_000
    assert [point.index_nanos for point in index(1, NOON + HOUR)] == [800_000_000]


@pytest.mark.django_db
def test_the_index_is_carried_while_nothing_trades() -> None:
    traded(NOON - 30 * HOUR, price=3, gpu_hours=1)

    found = index(24, NOON)

    assert [point.index_nanos for point in found] == [3 * NANOS_PER_UNIT] * 24
    assert {point.gpu_millis for point in found} == {0}


@pytest.mark.django_db
def test_there_is_no_index_before_the_first_trade_or_long_after_the_last() -> None:
    traded(NOON - 2 * HOUR, price=3, gpu_hours=1)
    traded(NOON - timedelta(days=10), price=3, gpu_hours=1, model="T4")

    found = index(24, NOON)

    assert [point.hour for point in found] == [NOON - 2 * HOUR, NOON - HOUR]


@pytest.mark.django_db
def test_the_index_can_be_of_one_model() -> None:
    traded(NOON, price=3, gpu_hours=1)
    traded(NOON, price=1, gpu_hours=1, model="T4")

    assert [point.gpu_model for point in index(1, NOON + HOUR, "T4")] == ["T4"]
    assert len(index(1, NOON + HOUR)) == 2


def quote(market: Market, gpus: int, hours: int, starts: str) -> WindowQuote:
    found = window_quotes(
        market.store, market=MARKET, gpu_model="H100-80GB", currency="USD", now=market.now
    )
    assert len(found) == len(GPUS) * len(LENGTHS) * len(STARTS)
    length = timedelta(hours=hours)
    return next(
        each
        for each in found
        if (each.gpus, each.length, each.starts_within) == (gpus, length, starts)
    )


def test_a_quote_is_what_would_be_paid_by_when_it_starts() -> None:
    market = Market(MemoryStore())
    tomorrow = NOON + timedelta(hours=20)
    market.offer("now", gpus=1, at=3, windows=[(NOON, NOON + timedelta(hours=2))])
    market.offer("later", gpus=8, at=1, windows=[(tomorrow, tomorrow + timedelta(hours=10))])

    now, day = quote(market, 1, 1, "now"), quote(market, 1, 1, "day")
    eight = quote(market, 8, 8, "day")

    assert (now.price, day.price) == (rate(3), rate(1))
    assert day.window is not None
    assert day.window.starts_at == tomorrow
    assert eight.cost is not None
    assert eight.cost.nanos == 64 * NANOS_PER_UNIT


def test_what_is_not_to_be_had_has_no_price() -> None:
    market = Market(MemoryStore())
    market.offer("now", gpus=1, at=3, windows=[(NOON, NOON + timedelta(hours=2))])

    assert quote(market, 8, 1, "week").price is None
    assert quote(market, 1, 72, "week").price is None


def test_a_quote_writes_nothing() -> None:
    market = Market(MemoryStore())
    market.offer("now", gpus=1)
    head = market.store.head()

    quote(market, 1, 1, "now")

    assert market.store.head() == head
