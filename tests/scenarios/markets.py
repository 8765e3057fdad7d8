"""A market in text: what happens, line by line, and who must hold what in the end.

    == the cheapest floor wins
    offer a: 2 H100-80GB at 1.50
    offer b: 2 H100-80GB at 1.20 from 12:00 to 20:00
    bid x: 2 for 3h at 2.00
    => x: b:0 b:1 12:00-15:00 at 1.20

Times are those of one Monday; 30:00 is six o'clock on Tuesday. GPUs are called host:index, and a
host like its offer unless `on HOST` says otherwise. The engine runs after every line, so a round
is cleared whenever `clock HH:MM` moves time by a minute or more.

offer NAME: COUNT MODEL at PRICE [on HOST] [only 0,1] [from T to T]… [min 2h] [kinds a,b]
            [region R] [label k=v] [isolation I] [nvlink 2] [for BID]
bid NAME:   COUNT for LENGTH at PRICE [from T] [by T] [gang] [patient] [class C] [kind K]
            [want QUERY]
reprice NAME: PRICE | pause NAME | resume NAME | withdraw NAME
amend NAME: PRICE by T | cancel NAME | close NAME | reclaim NAME | extend NAME: T | clock T
=> NAME: GPU… T-T at PRICE | => NAME: waits REASON | => NAME: gone | => NAME: declined REASON
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ledger.domain.ids import BidId
from ledger.domain.money import decimal_of
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import ExtensionDeclined, ExtensionGranted, RoundCleared
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named

MIDNIGHT = NOON.replace(hour=0)


@dataclass(frozen=True)
class Scenario:
    """One story with its end."""

    title: str
    steps: tuple[str, ...]
    expected: tuple[str, ...]


def scenarios(folder: Path) -> Iterator[Scenario]:
    """Yield every scenario of a folder's tables."""
    for path in sorted(folder.glob("*.market")):
        for block in path.read_text().split("\n== ")[1:]:
            title, *lines = (line.strip() for line in block.strip().splitlines())
            lines = [line for line in lines if line and not line.startswith("#")]
            yield Scenario(
                f"{path.stem}: {title}",
                tuple(line for line in lines if not line.startswith("=>")),
                tuple(line[2:].strip() for line in lines if line.startswith("=>")),
            )


def play(scenario: Scenario) -> list[str]:
    """Let the steps happen and say for each expected line's name what came of it."""
    market = Market()
    market.run()
    for step in scenario.steps:
        head, _, rest = step.partition(":") if not step.startswith("clock") else (step, "", "")
        verb, name = head.split()
        _act(market, verb, name, rest.split())
        market.run()
    return [
        f"{name}: {_outcome(market, name)}"
        for name in (line.split(":")[0] for line in scenario.expected)
    ]


def _act(market: Market, verb: str, name: str, words: list[str]) -> None:
    match verb:
        case "clock":
            market.now = _time(name)
        case "offer":
            market.offer(name, **_offer_words(words))
        case "bid":
            market.bid(name, **_bid_words(words, market.now))
        case "reprice":
            market.change_offer(name, "reprice", words[0])
        case "pause" | "resume" | "withdraw":
            market.change_offer(name, verb)
        case "amend":
            market.amend(name, at=words[0], deadline=_time(words[2]))
        case "cancel":
            market.cancel(name)
        case "close":
            market.close(name)
        case "reclaim":
            market.reclaim(name)
        case "extend":
            market.extend(name, _time(words[0]))
        case _:
            raise AssertionError(f"no such step: {verb}")


def _offer_words(words: list[str]) -> dict[str, Any]:
    count, model, _, price, *rest = words
    said: dict[str, Any] = {"gpus": int(count), "model": model, "at": price, "windows": []}
    words_left = iter(rest)
    for word in words_left:
        value = next(words_left)
        match word:
            case "on":
                said["host"] = value
            case "only":
                said["only"] = [int(index) for index in value.split(",")]
            case "from":
                assert next(words_left) == "to"
                said["windows"].append((_time(value), _time(next(words_left))))
            case "min":
                said["lease_min"] = _length(value)
            case "kinds":
                said["kinds"] = tuple(value.split(","))
            case "label":
                label, _, text = value.partition("=")
                said["labels"] = ((label, text),)
            case "nvlink":
                said["nvlink"] = int(value)
            case "for":
                said["reserved_for"] = value
            case "region" | "isolation" | "currency":
                said[word] = value
            case _:
                raise AssertionError(f"an offer has no {word}")
    return said


def _bid_words(words: list[str], now: datetime) -> dict[str, Any]:
    query = ""
    if "want" in words:
        place = words.index("want")
        words, query = words[:place], " ".join(words[place + 1 :])
    count, _, length, _, price, *rest = words
    said: dict[str, Any] = {
        "gpus": int(count),
        "hours": _length(length) / timedelta(hours=1),
        "at": price,
        "request": read_query(query),
    }
    words_left = iter(rest)
    for word in words_left:
        match word:
            case "gang":
                said["gang"] = True
            case "patient":
                said["patience"] = "patient"
            case "from":
                said["start"] = _time(next(words_left))
            case "by":
                said["deadline"] = _time(next(words_left))
            case "class":
                said["service_class"] = next(words_left)
            case "kind" | "currency":
                said[word] = next(words_left)
            case _:
                raise AssertionError(f"a bid has no {word}")
    return said


def _outcome(market: Market, name: str) -> str:
    decided = [recorded.event for recorded in market.decisions()]
    granted = market.grant(name)
    if granted is None:
        reasons = [
            unmatched.reason
            for event in decided
            if isinstance(event, RoundCleared)
            for unmatched in event.unmatched
            if unmatched.bid_id == BidId(named(f"bid {name}"))
        ]
        return f"waits {reasons[-1]}" if reasons else "gone"
    ends_at, declined = granted.window.ends_at, ""
    for event in decided:
        if isinstance(event, ExtensionGranted) and event.lease_id == granted.lease_id:
            ends_at = event.ends_at
        if isinstance(event, ExtensionDeclined) and event.lease_id == granted.lease_id:
            declined = f" declined {event.reason}"
    gpus = " ".join(sorted(uuid for share in granted.shares for uuid in share.gpu_uuids))
    price = decimal_of(granted.price.nanos_per_gpu_hour)
    span = f"{_clock(granted.window.starts_at)}-{_clock(ends_at)}"
    return f"{gpus} {span} at {price}{declined}"


def _time(text: str) -> datetime:
    hours, minutes = text.split(":")
    return MIDNIGHT + timedelta(hours=int(hours), minutes=int(minutes))


def _clock(moment: datetime) -> str:
    minutes = (moment - MIDNIGHT) // timedelta(minutes=1)
    assert MIDNIGHT + timedelta(minutes=minutes) == moment, "scenarios keep to whole minutes"
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _length(text: str) -> timedelta:
    form = re.fullmatch(r"(?:([0-9]+)h)?(?:([0-9]+)m)?", text)
    assert form is not None
    return timedelta(hours=int(form[1] or 0), minutes=int(form[2] or 0))
