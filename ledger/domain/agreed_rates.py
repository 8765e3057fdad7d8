"""The price of a lease where both sides agreed to change it, from an instant on.

What was used before keeps its price. Of each price all that was used at it is rated together, and
rounded down, so the sums are the same however use is cut into windows, and in whatever order it is
charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, HoldId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window


class HoldRepriced(Event, name="ledger.hold-repriced"):
    """Use from `since` on is charged to a hold at another price: both sides of its lease agreed.

    before: what use until then is charged at. No money moves by it.
    """

    account_id: AccountId
    hold_id: HoldId
    before: Rate
    price: Rate
    since: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class RateSince:
    """A price, and from when on it holds."""

    since: datetime
    price: Rate


def rate_at(first: Rate, later: Sequence[RateSince], at: datetime) -> Rate:
    """Return the price of use that begins at a moment. later: in order of time."""
    price = first
    for each in later:
        if each.since <= at:
            price = each.price
    return price


def spans_by_rate(
    first: Rate, later: Sequence[RateSince], window: Window
) -> Iterator[tuple[Rate, Window]]:
    """Yield the parts of a window, each with its price, in order."""
    starts_at, price = window.starts_at, rate_at(first, later, window.starts_at)
    for each in later:
        if starts_at < each.since < window.ends_at:
            yield price, Window(starts_at, each.since)
            starts_at, price = each.since, each.price
    yield price, Window(starts_at, window.ends_at)


def cost(first: Rate, later: Sequence[RateSince], window: Window, gpus: int) -> Money:
    """Return what GPUs cost that are used for all of a window."""
    millis: dict[Rate, int] = {}
    for price, part in spans_by_rate(first, later, window):
        millis[price] = millis.get(price, 0) + part.millis * gpus
    return charge(millis.items(), first.currency)


def charge(millis_by_rate: Iterable[tuple[Rate, int]], currency: str) -> Money:
    """Return what GPU-milliseconds come to, each sum of them at its price."""
    nanos = sum(price.charge(millis).nanos for price, millis in millis_by_rate)
    return Money(nanos, currency)
