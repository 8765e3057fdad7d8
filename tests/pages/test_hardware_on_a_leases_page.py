"""A lease's page says which hardware failed under its work, and who pays."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from config.site.pages.leases.timeline import steps_of
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent
from marketplace.domain.facts.close_reasons import GPU_FAILING
from marketplace.domain.facts.events import LeaseHardwareFailed
from tests.conftest import NOON, SOMEBODY


def test_the_card_its_error_and_what_its_owner_pays(store: MemoryStore) -> None:
    event = LeaseHardwareFailed(
        lease_id=LeaseId(UUID(int=1)),
        market="main",
        host_id=HostId(UUID(int=2)),
        owner_id=TenantId(UUID(int=3)),
        reason=GPU_FAILING,
        gpu_uuid="GPU-a",
        detail="XID 79",
        failed_at=NOON - timedelta(minutes=1),
        compensation=Money(2 * NANOS_PER_UNIT),
        at=NOON,
    )
    store.append("lease-1", [NewEvent(UUID(int=4), event)], expected=Expect.ANY, by=SOMEBODY)

    (step,) = steps_of([*store.read_stream("lease-1")])

    assert step.tone == "bad"
    assert step.detail.startswith("GPU-a: XID 79. Nothing is charged from ")
    assert step.detail.endswith("The owner pays $2.00.")
