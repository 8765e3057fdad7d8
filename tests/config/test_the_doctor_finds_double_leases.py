"""`manage.py doctor` says that a GPU is leased twice where it is, and nowhere else."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from config.examination import examine
from marketplace.models.leases import LeaseRow
from tests.conftest import NOON

pytestmark = pytest.mark.django_db

SOMEBODY = UUID(int=1)


def hour(number: float) -> datetime:
    return NOON + timedelta(hours=number)


def lease(
    *uuids: str, since: float, until: float, cut: float | None = None, closed: float | None = None
) -> None:
    LeaseRow.objects.create(
        lease_id=uuid4(),
        bid_id=uuid4(),
        market="main",
        tenant_id=SOMEBODY,
        subscriber_id=SOMEBODY,
        owner_ids=[SOMEBODY],
        host_ids=[SOMEBODY],
        gpu_model="H100-80GB",
        gpu_uuids=list(uuids),
        gpus=len(uuids),
        state="active" if closed is None else "closed",
        starts_at=hour(since),
        ends_at=hour(until),
        stop_at=None if cut is None else hour(cut),
        due_at=hour(until),
        price_nanos_per_gpu_hour=1,
        currency="USD",
        service_class="on-demand",
        workload_kind="training",
        cost_centre="",
        burst=False,
        notice_seconds=0,
        reclaim_fee_ppm=0,
        granted_at=hour(since),
        closed_at=None if closed is None else hour(closed),
        close_reason=None if closed is None else 301,
        version=1,
    )


def doubles() -> bool:
    [finding] = [each for each in examine(whole=False) if each.name.startswith("I1 ")]
    return not finding.ok


def test_a_gpu_in_two_leases_at_one_instant_is_found() -> None:
    lease("GPU-a", "GPU-b", since=0, until=4)
    lease("GPU-b", since=3, until=5)
    assert doubles()


def test_leases_one_after_the_other_are_none() -> None:
    lease("GPU-a", since=0, until=4)
    lease("GPU-a", since=4, until=5)
    lease("GPU-b", since=0, until=5)
    assert not doubles()


def test_who_takes_over_where_a_lease_is_cut_shares_nothing_with_it() -> None:
    """Its host reports some moments later that the work has ended."""
    lease("GPU-a", since=0, until=4, cut=2, closed=2.001)
    lease("GPU-a", since=2, until=6)
    assert not doubles()


def test_who_comes_before_the_cut_is_found() -> None:
    lease("GPU-a", since=0, until=4, cut=2, closed=2.001)
    lease("GPU-a", since=1.999, until=6)
    assert doubles()


def test_a_lease_left_early_makes_room() -> None:
    lease("GPU-a", since=0, until=4, closed=1)
    lease("GPU-a", since=1, until=4)
    assert not doubles()
