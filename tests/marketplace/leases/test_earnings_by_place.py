"""Earnings are placed where leases ran, and what places earned adds up to what was earned."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as DatabaseCase

from ledger.queries.payouts import EarnedBy
from marketplace.models.leases import LeaseShareRow
from marketplace.queries.earnings import By, earned_at
from tests.conftest import NOON

OWNER, HOST, OTHER_HOST, OFFER, OTHER_OFFER = (uuid4() for _ in range(5))
LEASE = uuid4()


def earned(nanos: int, *, lease: UUID | None = LEASE, fee: int = 0) -> EarnedBy:
    return EarnedBy(
        period="2026-01",
        kind="usage" if nanos > 0 else "compensation",
        lease_id=lease,
        sku="H100",
        currency="USD",
        gpu_millis=1_000 if nanos > 0 else 0,
        gross_nanos=nanos + fee,
        fee_nanos=fee,
        nanos=nanos,
    )


def share(host: UUID, offer: UUID, *gpus: str, owner: UUID = OWNER) -> None:
    LeaseShareRow.objects.create(
        key=f"{LEASE}:{host}",
        lease_id=LEASE,
        host_id=host,
        offer_id=offer,
        owner_id=owner,
        tenant_id=uuid4(),
        gpu_uuids=list(gpus),
        phase="over",
        starts_at=NOON,
        ends_at=NOON + timedelta(hours=1),
        workload={},
    )


@pytest.mark.django_db
def test_a_lease_on_two_hosts_is_divided_by_its_gpus() -> None:
    share(HOST, OFFER, "GPU-1", "GPU-2")
    share(OTHER_HOST, OTHER_OFFER, "GPU-3")
    by_host = earned_at([earned(300)], owner_id=OWNER, by="host")
    assert [(each.place.host_id, each.nanos) for each in by_host] == [
        (HOST, 200),
        (OTHER_HOST, 100),
    ]
    by_gpu = earned_at([earned(301)], owner_id=OWNER, by="gpu")
    assert [each.nanos for each in by_gpu] == [101, 100, 100]
    by_offer = earned_at([earned(300)], owner_id=OWNER, by="offer")
    assert [(each.place.offer_id, each.gpu_millis) for each in by_offer] == [
        (OFFER, 667),
        (OTHER_OFFER, 333),
    ]


@pytest.mark.django_db
def test_gpus_of_another_owner_of_the_lease_are_left_out() -> None:
    share(HOST, OFFER, "GPU-1")
    share(OTHER_HOST, OTHER_OFFER, "GPU-2", owner=uuid4())
    [only] = earned_at([earned(300)], owner_id=OWNER, by="gpu")
    assert (only.place.gpu_uuid, only.nanos) == ("GPU-1", 300)


@pytest.mark.django_db
def test_what_belongs_to_no_lease_has_a_line_of_its_own() -> None:
    [only] = earned_at([earned(-5, lease=None)], owner_id=OWNER, by="offer")
    assert (only.place.offer_id, only.nanos) == (None, -5)


class TestPlaces(DatabaseCase):
    @given(
        amounts=st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5),
        gpus=st.integers(1, 7),
        by=st.sampled_from(["gpu", "offer", "host"]),
    )
    def test_places_add_up_to_what_was_earned(self, amounts: list[int], gpus: int, by: By) -> None:
        share(HOST, OFFER, *(f"GPU-{number}" for number in range(gpus)))
        rows = [earned(each) for each in amounts]
        found = earned_at(rows, owner_id=OWNER, by=by)
        assert sum(each.nanos for each in found) == sum(amounts)
