"""The markets of an installation: which regions each covers.

A market has one engine and one stream, so several of them clear side by side. A host belongs to
one market for good: that which covers its region; so no GPU is ever in two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.domain.refusal import Refusal

MARKETS_MAX = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class MarketUnknown(Refusal):
    """There is no market of that name here: `markets` names those there are."""


class MarketsUnclear(ValueError):
    """The list of markets cannot be read; the text says what of it."""


@dataclass(frozen=True, slots=True)
class Market:
    """A market. regions: `eu` covers eu and eu-west; none: whatever no other market covers."""

    name: str
    regions: tuple[str, ...] = ()

    def covers(self, region: str) -> bool:
        """Tell if a host of a region is this market's."""
        return any(within(region, each) for each in self.regions)


def read_markets(home: str, text: str) -> tuple[Market, ...]:
    """Read `name=region,region;name=region`: the markets beside `home`, which has the rest.

    Raises: MarketsUnclear.
    """
    found = [Market(home)]
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, sign, listed = (each.strip() for each in part.partition("="))
        regions = tuple(filter(None, (each.strip() for each in listed.split(","))))
        if not sign or not regions or not _NAME.fullmatch(name):
            raise MarketsUnclear(f"{part!r}: say name=region,region")
        if any(name == other.name for other in found):
            raise MarketsUnclear(f"{name!r} is named twice")
        for region in regions:
            for other in found:
                if any(within(region, each) or within(each, region) for each in other.regions):
                    raise MarketsUnclear(f"{region!r} is in {other.name!r} already")
        found.append(Market(name, regions))
    if len(found) > MARKETS_MAX:
        raise MarketsUnclear(f"there may be {MARKETS_MAX} markets")
    return tuple(found)


def market_of_region(markets: Sequence[Market], region: str) -> str:
    """Return the market of a host: the first is that of all regions which no other covers."""
    return next((each.name for each in markets if each.covers(region)), markets[0].name)


def named(markets: Sequence[Market], name: str) -> Market:
    """Return the market of a name.

    Raises: MarketUnknown.
    """
    for market in markets:
        if market.name == name:
            return market
    raise MarketUnknown(market=name, markets=[each.name for each in markets])


def within_reach(
    markets: Sequence[Market], regions: Sequence[str], unwanted: Sequence[str] = ()
) -> list[str]:
    """Return the markets in which there can be hosts of any of some regions; no regions: of all.

    unwanted: regions that will not do. There is always one: where nothing can be, the first.
    """
    found = {name for each in regions for name in _reached(markets, each)}
    return [
        each.name
        for each in markets
        if (each.name in found or not regions)
        and not (each.regions and all(_any_within(own, unwanted) for own in each.regions))
    ] or [markets[0].name]


def _reached(markets: Sequence[Market], region: str) -> list[str]:
    others = [
        each.name
        for each in markets[1:]
        if any(within(region, own) or within(own, region) for own in each.regions)
    ]
    whole = any(each.covers(region) for each in markets[1:])
    return others if whole else [markets[0].name, *others]


def _any_within(region: str, areas: Sequence[str]) -> bool:
    return any(within(region, area) for area in areas)


def within(region: str, area: str) -> bool:
    """Tell if a region is another or a part of it: eu-west is within eu."""
    return region == area or region.startswith(area + "-")
