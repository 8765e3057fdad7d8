"""A grant that the tape is to show, who listens, and how long it is waited for."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from ledger.domain.ids import BidId, HostId, LeaseId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from marketplace.domain.facts.events import (
    LeaseGranted,
    Share,
)
from tests.conftest import NOON

WAIT_SECONDS = 60.0


class SignedIn:
    """Somebody who may listen."""

    is_authenticated = True
    pk = 1


def granted() -> LeaseGranted:
    share = Share(
        offer_id=OfferId(UUID(int=0xA1)),
        host_id=HostId(UUID(int=0xA2)),
        owner_id=TenantId(UUID(int=0xA3)),
        gpu_uuids=("GPU-1", "GPU-2"),
        notice_seconds=600,
        reclaim_fee_ppm=0,
        source="local",
    )
    return LeaseGranted(
        lease_id=LeaseId(UUID(int=0xA4)),
        bid_id=BidId(UUID(int=0xA5)),
        market="main",
        round_id=UUID(int=0xA6),
        shares=(share,),
        gpu_model="H100-80GB",
        window=Window(NOON, NOON + timedelta(hours=6)),
        price=Rate(2_140_000_000),
        at=NOON,
    )
