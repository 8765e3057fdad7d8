"""What a lease over several hosts allows while some of them run: its row says as its stream."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from ledger.access import Actor
from ledger.domain.ids import HostId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NO_STREAM, NewEvent
from ledger.following import follow_projections
from marketplace.domain.facts.events import WorkStarted
from marketplace.domain.leases.actions import offered, standing_of
from marketplace.models.leases import LeaseRow
from marketplace.projections.leases import PROJECTIONS
from marketplace.queries.leases import actions_of
from tests.conftest import NOON, SOMEBODY
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    EVE,
    HOST_A,
    HOST_B,
    LEASE,
    ONE_HOUR,
    START_GRACE,
    after,
    folded,
    scheduled,
    share,
)

STARTS = NOON + ONE_HOUR
CONSUMER = Actor(tenant_id=EVE, roles=frozenset({"consumer"}))


@pytest.mark.django_db
@pytest.mark.parametrize("running", [(), (HOST_A,), (HOST_B, HOST_A)])
def test_a_checkpoint_is_offered_from_the_first_host_on(running: tuple[HostId, ...]) -> None:
    granted = scheduled(share(HOST_A, ADA), share(HOST_B, BOB))
    lease = folded(granted)
    events = [granted, *lease.tick(now=STARTS, start_grace=START_GRACE)]
    lease = after(folded(granted), events[1:])
    now = STARTS + timedelta(seconds=5)
    for host_id in running:
        started = WorkStarted(lease_id=LEASE, host_id=host_id, at=now)
        events.append(started)
        lease = after(lease, [started])
    store = MemoryStore()
    new = [NewEvent(uuid4(), event) for event in events]
    store.append(f"lease-{LEASE}", new, expected=NO_STREAM, by=SOMEBODY)
    follow_projections(store, PROJECTIONS)

    by_stream = offered(standing_of(lease), tenant_id=EVE, now=now)
    row = LeaseRow.objects.get(pk=LEASE)

    assert actions_of(CONSUMER, [row], now=now)[LEASE] == by_stream
    assert ("checkpoint" in by_stream) == bool(running)
