"""Of what a buyer pays for the rest of a lease, its owner gets what the first lease agreed."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.holds import WEIGHT_MAX
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.journal import split
from ledger.domain.money import Rate
from marketplace.domain.facts.events import LeaseScheduled, Resold
from metering.commands import weights_of
from metering.domain.events import GpuUse
from tests.marketplace.support.leasing import ADA, HOST_A, scheduled, share

RESELLER = TenantId(UUID(int=99))


def resold_lease(*, first: int, paid: int, reseller: TenantId = RESELLER) -> LeaseScheduled:
    """Return a lease at `paid` nano-units per GPU-hour, on GPUs leased before at `first`."""
    given_on = replace(
        share(HOST_A, ADA),
        resold=Resold(LeaseId(UUID(int=77)), reseller, Rate(first)),
    )
    return replace(scheduled(given_on), price=Rate(paid))


def used(lease: LeaseScheduled, *millis: int) -> list[GpuUse]:
    [given_on] = lease.shares
    return [
        GpuUse(
            host_id=HostId(given_on.host_id),
            owner_id=given_on.owner_id,
            gpu_uuid=uuid,
            granted_ms=ms,
            occupied_ms=None,
            busy_ms=None,
            gap_ms=0,
        )
        for uuid, ms in zip(given_on.gpu_uuids, millis, strict=True)
    ]


def test_use_that_was_not_resold_is_divided_by_gpu_time() -> None:
    lease = scheduled()
    assert weights_of(lease, used(lease, 5, 7)) is None


def test_the_owner_gets_the_first_price_and_the_reseller_the_difference() -> None:
    lease = resold_lease(first=1_000_000_000, paid=1_500_000_000)
    weights = weights_of(lease, used(lease, 3_600_000, 3_600_000))
    assert weights is not None
    assert weights[ADA] == 2 * weights[RESELLER]


def test_an_owner_who_bought_and_resells_its_own_gets_all_of_it() -> None:
    lease = resold_lease(first=1_000_000_000, paid=1_500_000_000, reseller=ADA)
    weights = weights_of(lease, used(lease, 10, 10))
    assert weights is not None
    assert set(weights) == {ADA}


@given(
    first=st.integers(0, 10_000 * 10**9),
    more=st.integers(0, 10_000 * 10**9),
    millis=st.tuples(st.integers(0, 3_600_000), st.integers(1, 3_600_000)),
    fee_ppm=st.integers(0, 300_000),
)
def test_to_the_nano_unit_for_any_prices_and_uses(
    first: int, more: int, millis: tuple[int, int], fee_ppm: int
) -> None:
    lease = resold_lease(first=first, paid=first + more)
    weights = weights_of(lease, used(lease, *millis))
    charged = lease.price.charge(sum(millis))
    rest = charged - charged.share(fee_ppm)
    if weights is None:
        assert first + more == 0
        return
    assert 0 <= sum(weights.values()) <= WEIGHT_MAX
    earners = list(weights)
    parts = dict(zip(earners, split(rest.nanos, [weights[e] for e in earners]), strict=True))
    assert sum(parts.values()) == rest.nanos
    agreed = Rate(first).charge(sum(millis))
    assert abs(parts[ADA] - (agreed - agreed.share(fee_ppm)).nanos) <= 2


def test_a_free_lease_sold_on_needs_no_division() -> None:
    lease = resold_lease(first=0, paid=0)
    assert weights_of(lease, used(lease, 1, 1)) is None


@pytest.mark.parametrize("first", [0, 2_000_000_000])
def test_one_side_may_get_nothing(first: int) -> None:
    lease = resold_lease(first=first, paid=2_000_000_000)
    weights = weights_of(lease, used(lease, 1, 1))
    assert weights is not None
    assert min(weights.values()) == 0
