"""Rating and splitting: exact to the nano-unit, whatever the batching and the order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain import journal
from ledger.domain.money import Money, Rate

prices = st.integers(0, 50_000_000_000).map(Rate)
millis = st.integers(0, 8 * 3_600_000)


@given(prices, st.lists(millis, max_size=30), st.randoms(use_true_random=False))
def test_charges_of_any_batching_in_any_order_sum_to_the_price_of_the_total(
    price: Rate, uses: list[int], random: object
) -> None:
    random.shuffle(uses)  # type: ignore[attr-defined]
    before, charges = 0, []
    for use in uses:
        charges.append(journal.rate(price, millis_before=before, gpu_millis=use).nanos)
        before += use

    assert sum(charges) == price.charge(sum(uses)).nanos
    assert all(charge >= 0 for charge in charges)


@given(prices, millis, millis)
def test_a_single_charge_is_less_than_a_nano_from_its_own_product(
    price: Rate, before: int, use: int
) -> None:
    charge = journal.rate(price, millis_before=before, gpu_millis=use).nanos

    assert abs(charge * 3_600_000 - price.nanos_per_gpu_hour * use) < 3_600_000


@given(st.lists(st.integers(0, 10**12), max_size=30), st.integers(0, 1_000_000))
def test_fees_sum_to_their_share_of_the_sum_and_never_exceed_a_charge(
    charges: list[int], fee_ppm: int
) -> None:
    before, fees = Money(0), []
    for nanos in charges:
        fee = journal.next_fee(before, Money(nanos), fee_ppm=fee_ppm)
        assert 0 <= fee.nanos <= nanos
        fees.append(fee.nanos)
        before = before + Money(nanos)

    assert sum(fees) == Money(sum(charges)).share(fee_ppm).nanos


@given(
    st.integers(0, 10**15),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=40).filter(any),
)
def test_a_split_is_exact_and_each_part_within_a_nano_of_its_share(
    nanos: int, weights: list[int]
) -> None:
    parts = journal.split(nanos, weights)

    total = sum(weights)
    assert sum(parts) == nanos
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * total - nanos * weight) < total


def test_a_splits_ties_go_to_the_earlier() -> None:
    assert journal.split(10, [1, 1, 1]) == [4, 3, 3]
    assert journal.split(11, [1, 1, 1]) == [4, 4, 3]
    assert journal.split(2, [0, 1, 0]) == [0, 2, 0]
