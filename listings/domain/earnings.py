"""What listing idle GPUs may bring in, told as a range and never as a promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger.domain.money import Money, Rate
from ledger.domain.span import Window

PPM = 1_000_000
DAYS_MIN = 5
"""Fewer days with anything listed say nothing about tomorrow."""


@dataclass(frozen=True, slots=True)
class DayOfMarket:
    """GPU-time of one UTC day over the whole market."""

    listed_ms: int
    sold_ms: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Which share of listed time is sold: on a slow day, and on a good one.

    basis: `measured` on the market's last days, or `assumed` where it has too short a history.
    """

    low_ppm: int
    high_ppm: int
    basis: Literal["measured", "assumed"]
    days: int


@dataclass(frozen=True, slots=True)
class Earnings:
    """What is left for the owner after the platform's fee, at the floor price.

    The cleared price is never below the floor, so only the share sold is uncertain.
    full: if every listed millisecond were sold.
    """

    listed_ms: int
    low: Money
    high: Money
    full: Money
    fill: Fill


ASSUMED = Fill(low_ppm=200_000, high_ppm=700_000, basis="assumed", days=0)


def fill_of(days: Iterable[DayOfMarket]) -> Fill:
    """Return the range of the middle half of days: first and third quartile of the share sold.

    days: in any order; those on which nothing was listed do not count.
    """
    shares = sorted(
        min(PPM, day.sold_ms * PPM // day.listed_ms) for day in days if day.listed_ms > 0
    )
    if len(shares) < DAYS_MIN:
        return ASSUMED
    last = len(shares) - 1
    low, high = shares[last // 4], shares[-1 - last // 4]
    return Fill(low, high, "measured", len(shares))


def preview_earnings(
    windows: Sequence[Window], *, gpus: int, floor: Rate, fee_ppm: int, fill: Fill
) -> Earnings:
    """Return what `gpus` GPUs listed over these windows may bring in.

    windows: without overlaps. fee_ppm: the platform's share of a charge.
    """
    listed_ms = gpus * sum(window.millis for window in windows)

    def kept(ppm: int) -> Money:
        charged = floor.charge(listed_ms * ppm // PPM)
        return charged - charged.share(fee_ppm)

    return Earnings(listed_ms, kept(fill.low_ppm), kept(fill.high_ppm), kept(PPM), fill)
