"""A published price index of each GPU model by the hour, smoothed over hours, from trades alone.

The index at the end of an hour is the mean price of all trades so far, each weighing as much as
its GPU-time, halved for every HALF_LIFE that has passed since its hour:

    index = Σ price × GPU-time × ½^(age ÷ half-life)  ÷  Σ GPU-time × ½^(age ÷ half-life)

A large trade moves it more than a small one, a recent one more than an old one. While nothing
trades, both sums shrink alike and the index stays where it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from marketplace.models.rounds import PriceRow
from marketplace.queries.market import Goods, mean_price

HALF_LIFE = timedelta(hours=6)
REACH = timedelta(days=7)
"""How far back trades count: 28 half-lives, by when a trade weighs less than a billionth."""
HOUR = timedelta(hours=1)
KEPT = 0.5 ** (HOUR / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """The index of a model at the end of an hour. gpu_millis: traded in that hour; 0: carried."""

    gpu_model: str
    currency: str
    hour: datetime
    index_nanos: int
    gpu_millis: int


def price_index(
    *, market: str, gpu_model: str | None, since: datetime, until: datetime
) -> list[IndexPoint]:
    """Return the index by model and hour, oldest first, from the first trade that counts on."""
    first = since.replace(minute=0, second=0, microsecond=0)
    rows = PriceRow.objects.filter(market=market, hour__gte=first - REACH, hour__lt=until)
    if gpu_model is not None:
        rows = rows.filter(gpu_model=gpu_model)
    by_goods: dict[Goods, dict[datetime, PriceRow]] = defaultdict(dict)
    for row in rows:
        by_goods[row.gpu_model, row.currency][row.hour] = row
    found = [
        point
        for goods in sorted(by_goods)
        for point in _points(goods, by_goods[goods], first - REACH, until)
        if point.hour >= first
    ]
    return sorted(found, key=lambda point: point.hour)


def _points(
    goods: Goods, rows: dict[datetime, PriceRow], since: datetime, until: datetime
) -> Iterable[IndexPoint]:
    value = time = 0.0
    hour = since
    while hour < until:
        row = rows.get(hour)
        value, time = value * KEPT, time * KEPT
        if row is not None:
            value += mean_price([row]) * row.gpu_millis
            time += row.gpu_millis
        if time:
            index = round(value / time)
            yield IndexPoint(*goods, hour, index, 0 if row is None else row.gpu_millis)
        hour += HOUR
