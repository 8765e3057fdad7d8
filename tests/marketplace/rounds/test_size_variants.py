"""A round weighs the sizes that bids make do with: less for one can be worth more in all."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.rounds.batch_clearing import clear_round
from marketplace.domain.rounds.size_variants import SIZED_MAX, SIZES_MAX, once, sizes_of
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.rounds import book_of, cleared

HOURS_4 = [(NOON, NOON + timedelta(hours=4))]
DUE = NOON + timedelta(hours=4)


def market_of(gpus: int) -> Market:
    market = Market()
    market.offer("a", gpus=gpus, at=1, windows=HOURS_4)
    return market


def sizes(told: tuple[RoundCleared, list[LeaseGranted]]) -> dict[UUID, tuple[int, float]]:
    """Return GPUs and hours of each grant, and see that no more is worth than is proven."""
    assert told[0].certificate is not None
    assert told[0].certificate.welfare_nanos <= told[0].certificate.bound_nanos
    return {
        granted.bid_id: (
            sum(len(share.gpu_uuids) for share in granted.shares),
            (granted.window.ends_at - granted.window.starts_at) / timedelta(hours=1),
        )
        for granted in told[1]
    }


def test_who_makes_do_with_fewer_gpus_leaves_room_for_another() -> None:
    market = market_of(8)
    market.bid("x", gpus=8, gpus_min=2, hours=4, at=5, deadline=DUE, patience="patient")
    market.bid("y", gpus=6, hours=4, at=6, deadline=DUE, patience="patient")

    got = sizes(cleared(book_of(market)))

    # Whole, x is worth 128. With two GPUs it is worth 32, and y 120 besides.
    assert got == {named("bid x"): (2, 4.0), named("bid y"): (6, 4.0)}


def test_who_makes_do_with_less_leaves_room_for_one_who_pays_more() -> None:
    market = market_of(8)
    market.bid("x", gpus=8, gpus_min=2, hours=4, at=9, deadline=DUE, patience="patient")
    market.bid("y", gpus=6, hours=4, at=12, deadline=DUE, patience="patient")

    got = sizes(cleared(book_of(market)))

    # Whole, x is worth 256 and y 264, alone. Together, with two GPUs for x, they are worth 328.
    assert got == {named("bid x"): (2, 4.0), named("bid y"): (6, 4.0)}


def test_who_makes_do_with_a_shorter_lease_leaves_hours_for_one_who_pays_more() -> None:
    market = market_of(2)
    market.bid(
        "x", gpus=2, hours=4, at=9, deadline=DUE, patience="patient", duration_min_seconds=3_600
    )
    market.bid("y", gpus=2, hours=2, at=20, start=NOON, deadline=DUE, patience="patient")

    got = sizes(cleared(book_of(market)))

    assert got == {named("bid x"): (2, 2.0), named("bid y"): (2, 2.0)}


def test_who_got_a_smaller_size_is_given_what_is_left() -> None:
    market = market_of(8)
    market.bid("x", gpus=8, gpus_min=1, hours=4, at=9, deadline=DUE, patience="patient")
    market.bid("y", gpus=1, hours=4, at=40, deadline=DUE, patience="patient")

    got = sizes(cleared(book_of(market)))

    # x is searched with 8, 1, 2, 4 and 6 GPUs, and has 7 in the end.
    assert got == {named("bid x"): (7, 4.0), named("bid y"): (1, 4.0)}


def test_a_bid_gets_one_of_its_sizes_only() -> None:
    market = market_of(8)
    market.bid("x", gpus=4, gpus_min=2, hours=2, at=9, deadline=DUE, patience="patient")

    got = sizes(cleared(book_of(market)))

    assert got == {named("bid x"): (4, 2.0)}


def test_a_round_with_sizes_is_made_again_from_its_steps() -> None:
    market = market_of(8)
    for number in range(12):
        market.bid(
            f"x{number}", gpus=4 + number % 3, gpus_min=1, hours=2, at=5 + number, deadline=DUE,
            duration_min_seconds=3_600, patience="patient",
        )  # fmt: skip
    book, now = book_of(market), from_above(NOON)

    first = clear_round(book, book.patient(), now=now, round_id=UUID(int=9), enough=lambda: False)
    assert first.proof is not None
    again = clear_round(
        book, book.patient(), now=now, round_id=UUID(int=9), steps=dict(first.proof.steps)
    )

    made = [
        [
            (fill.lease_id, fill.bid.gpus, fill.bid.duration, fill.placement, fill.price)
            for fill in each
        ]
        for each in (first.fills, again.fills)
    ]
    assert made[0] == made[1]
    assert any(fill.bid.gpus < 4 for fill in first.fills)


def test_sizes_are_few_and_left_out_of_large_rounds() -> None:
    market = market_of(8)
    market.bid("x", gpus=8, gpus_min=1, hours=4, duration_min_seconds=60, patience="patient")
    [bid] = book_of(market).patient()

    sized = sizes_of([bid])
    quotas, counts = once(sized, 5)

    assert sized[0] == bid
    assert len(sized) == SIZES_MAX == len({(each.gpus, each.duration) for each in sized})
    assert len(quotas) == 1
    assert {groups for groups, _ in counts} == {(5,)}
    assert len(sizes_of([bid] * SIZED_MAX)) == SIZED_MAX


@pytest.mark.parametrize("size", range(SIZES_MAX))
def test_one_size_has_room_in_its_quota_and_no_second(size: int) -> None:
    market = market_of(8)
    market.bid("x", gpus=8, gpus_min=1, hours=4, duration_min_seconds=60, patience="patient")
    sized = sizes_of(list(book_of(market).patient()))
    [quota], counts = once(sized, 0)
    assert quota.gpu_ms is not None

    used = [
        shares[0] * bid.gpus * bid.duration for bid, (_, shares) in zip(sized, counts, strict=True)
    ]

    assert used[size] <= quota.gpu_ms
    assert all(used[size] + other > quota.gpu_ms for other in used)
