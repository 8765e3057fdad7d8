"""A host of an owner, and terms for one evening, on the memory store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta
from listings import commands
from listings.domain.events import Gpu
from listings.domain.terms import OfferTerms
from tests.conftest import NOON

OWNER = TenantId(UUID(int=1))
STRANGER = TenantId(UUID(int=2))
HOST = HostId(UUID(int=10))
OTHER_HOST = HostId(UUID(int=11))
OFFER = OfferId(UUID(int=100))
OTHER_OFFER = OfferId(UUID(int=101))
ADA = Meta(actor="user:ada", tenant_id=OWNER)
EVE = Meta(actor="user:eve", tenant_id=STRANGER)


def gpu(uuid: str = "GPU-a", **fields: Any) -> Gpu:
    known: dict[str, Any] = {
        "model": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81_559,
        "compute_capability": "9.0",
        "driver": "580.65.06",
    }
    return Gpu(uuid=uuid, **(known | fields))


def span(start_hours: float, hours: float, *, now: datetime = NOON) -> Window:
    starts_at = now + timedelta(hours=start_hours)
    return Window(starts_at, starts_at + timedelta(hours=hours))


def terms(*uuids: str, **fields: Any) -> OfferTerms:
    known: dict[str, Any] = {"windows": (span(6, 8),), "floor": Rate(1_500_000_000)}
    return OfferTerms(gpu_uuids=uuids or ("GPU-a",), **(known | fields))


def publish(
    store: MemoryStore, offer_id: OfferId = OFFER, wanted: OfferTerms | None = None, **rest: Any
) -> int:
    known: dict[str, Any] = {"host_id": HOST, "by": ADA, "now": NOON}
    return commands.publish_offer(
        store, offer_id=offer_id, terms=wanted or terms(), **(known | rest)
    )


@pytest.fixture
def market(store: MemoryStore) -> MemoryStore:
    """A store in which OWNER has a host with two GPUs, and STRANGER one with none."""
    for host_id, by in ((HOST, ADA), (OTHER_HOST, EVE)):
        assert by.tenant_id is not None
        commands.register_host(
            store,
            host_id=host_id,
            tenant_id=TenantId(by.tenant_id),
            title="Lab 3, rack 2",
            market="eu",
            region="eu-west",
            labels=(("rack", "2"),),
            by=by,
            now=NOON,
        )
    commands.report_inventory(
        store, host_id=HOST, gpus=[gpu("GPU-a"), gpu("GPU-b")], by=ADA, now=NOON
    )
    return store
