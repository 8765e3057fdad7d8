"""A round that is late tries fewer bids, and nobody pays for that who was promised otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.admission.gate import gate_of
from marketplace.domain.clearing import work_budget
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import QuotaOverridden
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds import batch_clearing, realise
from marketplace.domain.rounds.class_problem import Entries, Part, Usable, part_of
from marketplace.domain.rounds.clearing_prices import Prices
from marketplace.domain.solver.problem import Floats, Ints
from tests.conftest import NOON
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import OWNER, Market, named
from tests.marketplace.support.policies import override, quota
from tests.marketplace.support.rounds import NOW, book_of, cleared, no_fault

HOUR = timedelta(hours=1)
USD = 10**9


def too_late(stage: str) -> bool:
    return True


@pytest.fixture
def few_tries() -> Iterator[None]:
    with (
        mock.patch.object(work_budget, "TRIES_MIN", 1),
        mock.patch.object(batch_clearing, "FIRST_MIN", 1),
    ):
        yield


def test_who_is_guaranteed_and_was_not_tried_in_time_still_goes_first_at_the_floor(
    few_tries: None,
) -> None:
    """Four GPUs are red's own. Three of its bids come too late to be tried one by one."""
    market = Governed()
    market.offer("rack", gpus=4, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(4, None))
    for number in range(4):
        market.ask("red", f"red {number}", 1, at=2, patience="patient")
    for number in range(4):
        market.bid(f"dear {number}", at=9, patience="patient")

    told, grants = cleared(book_of(market), warn=no_fault, late=too_late)

    assert told.certificate is not None
    assert dict(told.certificate.iterations)["guaranteed"] == 1
    assert {each.bid_id for each in grants} == {named(f"bid red {n}") for n in range(4)}
    assert {each.price.nanos_per_gpu_hour for each in grants} == {USD}
    again = cleared(book_of(market), steps=dict(told.certificate.iterations))
    assert again == (told, grants)


def test_each_class_of_bids_has_a_part_of_the_time_by_how_many_they_are(few_tries: None) -> None:
    market = Governed()
    market.offer("rack", gpus=4, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(4, None))
    for number in range(4):
        market.ask("red", f"red {number}", 1, at=2, patience="patient")
    for number in range(4):
        market.bid(f"dear {number}", at=9, patience="patient")
    parts = list[float]()

    class Time:
        def __call__(self) -> bool:
            return False

        def part(self, share: float) -> Time:
            parts.append(share)
            return self

    cleared(book_of(market), warn=no_fault, late=too_late, enough=Time())

    guaranteed, all_others = 3, 7
    assert parts == [guaranteed / 10, all_others / 10]


def test_what_is_borrowed_pays_the_market_beside_what_is_ones_own(few_tries: None) -> None:
    """Of four red bids two are within its quota; the two others outbid a third for the rest."""
    market = Governed()
    market.offer("rack", gpus=4, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(2, None), blue=(2, None))
    for number in range(4):
        market.ask("red", f"red {number}", 1, at=9, patience="patient")
    market.bid("free", at=3, patience="patient")

    _, grants = cleared(book_of(market), warn=no_fault, late=too_late)

    prices = sorted(each.price.nanos_per_gpu_hour for each in grants)
    assert {each.bid_id for each in grants} == {named(f"bid red {n}") for n in range(4)}
    assert prices[:2] == [USD, USD]
    assert all(price > USD for price in prices[2:])


def test_what_the_search_finds_within_nominal_quota_pays_the_floor_too() -> None:
    """Red owns the GPU in the second hour only, which it gets because the first is dearer."""
    market = Governed()
    market.offer("rack", gpus=1, at=1, windows=[(NOON, NOON + 2 * HOUR)])
    market.govern(red=(None, None))
    market.policy(quota("lab", 1))
    night = override(str(unit_of("red")), 1, 1)
    assert isinstance(night, QuotaOverridden)
    market.policy(replace(night, ends_at=NOON + 2 * HOUR))
    end = NOON + 2 * HOUR
    market.bid("dear", at=9, deadline=NOON + HOUR, patience="patient")
    market.asking = "red"
    market.bid("mine", at=5, deadline=end, patience="patient")
    market.asking = ""
    market.bid("late", at=4, start=NOON + HOUR, deadline=end, patience="patient")

    _, grants = cleared(book_of(market), warn=no_fault)

    paid = {each.bid_id: each.price.nanos_per_gpu_hour for each in grants}
    assert paid.keys() == {named("bid dear"), named("bid mine")}
    assert paid[named("bid mine")] == USD  # type: ignore[index]  # a bid's id


def test_who_has_gpus_of_its_own_and_was_not_tried_in_time_pays_nothing_for_others(
    few_tries: None,
) -> None:
    market = Market()
    market.offer("home", gpus=3, at=1)
    market.offer("away", gpus=3, at=0.5, owner=TenantId(named("tenant other")))
    for number in range(3):
        market.bid(f"own {number}", at=9, patience="patient", tenant=OWNER)

    told, grants = cleared(book_of(market), warn=no_fault, late=too_late)

    assert told.certificate is not None
    assert dict(told.certificate.iterations)["own"] == 1
    # One is served first, one by the sweep; for the last it is too late in this round.
    assert [(each.own, each.price.nanos_per_gpu_hour) for each in grants] == [(True, 0)] * 2
    assert cleared(book_of(market), steps=dict(told.certificate.iterations)) == (told, grants)


def test_a_late_round_leaves_grants_where_they_are_on_the_grid(few_tries: None) -> None:
    """Both could begin at once; only the first is looked at in time."""
    market = Market()
    opens = NOON + timedelta(hours=4, minutes=7)
    market.offer("a", gpus=2, at=1, windows=[(opens, NOON + 9 * HOUR)])
    for word in "xy":
        market.bid(word, at=3, patience="patient", deadline=NOON + 8 * HOUR)
    honest = realise.given_names

    def coarse(*args: Any) -> Any:
        """Start all at five o'clock, as a coarser grid would."""
        given = honest(*args)
        at = from_above(NOON + 5 * HOUR)
        return [(bid, replace(placement, starts=at)) for bid, placement in given]

    with mock.patch.object(batch_clearing, "given_names", coarse):
        told, late = cleared(book_of(market), warn=no_fault, late=too_late)
        _, in_time = cleared(book_of(market), warn=no_fault)

    assert [each.window.starts_at for each in in_time] == [opens, opens]
    assert [each.window.starts_at for each in late] == [opens, NOON + 5 * HOUR]
    assert told.certificate is not None
    assert dict(told.certificate.iterations)["on-demand USD moves"] == 1


# --- prices in one go, held to the plain rule --------------------------------------------------


def plainly_cheapest(part: Part, bid: OpenBid, number: int, line: Floats) -> float:
    """Return the mean dual at the cheapest start in a pool, start by start."""
    grid, found = part.grid, float("inf")
    for starts in grid:
        ends = starts + bid.duration
        if not bid.earliest <= starts <= bid.latest_start or not part.pools[number].free(
            starts, ends
        ):
            continue
        spent = np.interp(ends, grid, line) - np.interp(starts, grid, line)
        found = min(found, float(spent) / bid.duration)
    return found


def lets(part: Part, bid: OpenBid, number: int) -> bool:
    """Tell by its meaning if a bid may have GPUs of a pool, which fits its shape, at its limit."""
    listed = part.pools[number].listed
    return (
        listed.floor <= bid.limit
        and listed.lease_min <= bid.duration
        and listed.open_to(bid.bid_id)
        and bid.takes(listed)
        and listed.terms.tenant_id != bid.terms.tenant_id
        and (bid.bid_id, number) not in part.bounds.barred
        and bid.bid_id not in part.spared
    )


def plainly_usable(part: Part, bid: OpenBid) -> list[int]:
    found = [number for number in part.fits[bid.shape] if lets(part, bid, number)]

    def place(number: int) -> object:
        pool = part.pools[number]
        if bid.terms.placement == "any-hosts":
            return None
        nvlink = bid.terms.request.nvlink
        return (pool.listed.terms.host_id, pool.link if nvlink else None)

    def size(where: object) -> int:
        return sum(len(part.pools[each].uuids) for each in found if place(each) == where)

    return [number for number in found if size(place(number)) >= bid.gpus]


def some_parts() -> Iterator[Part]:
    """Yield what patient bids meet in all sorts of small markets."""
    for seed in range(12):
        random, market = Random(seed), Market()
        for number in range(5):
            since = NOON + random.randrange(6) * HOUR / 2
            market.offer(
                f"o{number}",
                gpus=random.choice((1, 2, 4)),
                nvlink=random.choice((None, 2)),
                at=random.choice((1, 2, 3)),
                owner=random.choice((OWNER, TenantId(named("tenant b3")))),
                reserved_for=random.choice((None, None, None, "b1")),
                lease_min=random.choice((HOUR / 60, 2 * HOUR)),
                windows=[
                    (since, since + random.randrange(1, 5) * HOUR),
                    (since + 6 * HOUR, since + 9 * HOUR),
                ],
            )
        for number in range(8):
            market.bid(
                f"b{number}",
                gpus=random.choice((1, 1, 2, 4)),
                hours=random.choice((0.5, 1, 2.25)),
                at=random.choice((1.5, 2.5, 4)),
                gang=random.random() < 0.3,
                request=GpuRequest(nvlink=random.random() < 0.2),
                deadline=NOON + random.randrange(3, 12) * HOUR,
                patience="patient",
            )
        book = book_of(market)
        yield part_of(book, book.patient(), book.calendar, gate_of(book), NOW)


def test_prices_are_what_the_plain_rule_says() -> None:
    asked, runs = 0, 0
    for number, part in enumerate(some_parts()):
        usable, entries, random = Usable(part), Entries(part), np.random.default_rng(number)
        shape = (len(part.pools), len(part.grid) - 1)
        prices = Prices(part.grid, part.pools, random.integers(0, 3 * USD, shape), usable)
        paid = prices._paid()
        for bid in part.bids:
            numbers: Ints = usable(bid)
            assert numbers.tolist() == plainly_usable(part, bid)
            plainly = [number for number in part.fits[bid.shape] if lets(part, bid, number)]
            assert usable.within_limit(bid).tolist() == plainly
            within = [each.pool for each in entries(bid) if each.floor <= bid.limit]
            assert within == plainly
            plain = [plainly_cheapest(part, bid, n, paid[n]) for n in numbers.tolist()]
            assert prices._cheapest(bid, numbers, paid).tolist() == pytest.approx(plain)
            asked += len(plain)
            runs += sum(each < float("inf") for each in plain)
    assert asked > runs > 50


def test_rivals_beyond_the_time_are_not_heard() -> None:
    """Of two refused bids one is heard: the price falls to what it would have paid."""
    market = Market()
    market.offer("a", gpus=1, at=1, windows=[(NOON, NOON + HOUR)])
    for word, at in (("x", 9), ("y", 5), ("z", 3)):
        market.bid(word, at=at, patience="patient", deadline=NOON + HOUR)
    book = book_of(market)
    part = part_of(book, book.patient(), book.calendar, None, NOW)
    rivals = [bid for bid in book.patient() if bid.limit < 9 * USD]
    duals = np.full((1, len(part.grid) - 1), 8 * USD)

    def price(heard: int) -> int:
        prices = Prices(part.grid, part.pools, duals, Usable(part))
        stage = Tries("prices", late=None, steps={"prices": heard}, least=0)
        prices.lower(rivals, stage)
        return prices.of(book.patient()[0], {0: 1}, part.grid[0])

    assert (price(0), price(1), price(2)) == (USD, 5 * USD, 5 * USD)
