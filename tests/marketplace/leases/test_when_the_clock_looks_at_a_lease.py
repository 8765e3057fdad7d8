"""The clock looks at a lease when time may have something to say of it, and not before."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from marketplace.models import LeaseRow
from marketplace.queries.leases import due_leases
from tests.conftest import NOON

pytestmark = pytest.mark.django_db

START_GRACE = timedelta(minutes=2)
MINUTE = timedelta(minutes=1)


def asked_to_start(at: datetime, **told: Any) -> LeaseRow:
    return LeaseRow.objects.create(
        **{
            "lease_id": uuid4(),
            "bid_id": uuid4(),
            "tenant_id": uuid4(),
            "subscriber_id": uuid4(),
            "owner_ids": [],
            "host_ids": [],
            "gpu_uuids": [],
            "gpus": 1,
            "state": "starting",
            "starts_at": at,
            "due_at": at,
            "ends_at": at + timedelta(hours=1),
            "granted_at": at,
            "price_nanos_per_gpu_hour": 1,
            "burst": False,
            "notice_seconds": 0,
            "reclaim_fee_ppm": 0,
            "version": 2,
            **told,
        }
    )


def looked_at(now: datetime) -> list[object]:
    return [key for _, key in due_leases(None, 10, now=now, start_grace=START_GRACE)]


def test_one_that_was_just_asked_to_start_is_left_alone_until_its_grace_is_over() -> None:
    lease = asked_to_start(NOON)

    assert looked_at(NOON + MINUTE) == []
    assert looked_at(NOON + START_GRACE) == [lease.lease_id]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"ends_at": NOON + MINUTE}, id="it ends"),
        pytest.param({"stop_at": NOON + MINUTE}, id="it has to stop"),
        pytest.param({"resale_state": "first-refusal"}, id="its rest is about to be sold"),
        pytest.param({"state": "scheduled"}, id="it is to be asked to start"),
    ],
)
def test_within_its_grace_it_is_looked_at_where_something_else_is_due(
    told: dict[str, object],
) -> None:
    lease = asked_to_start(NOON, **told)

    assert looked_at(NOON + MINUTE) == [lease.lease_id]
