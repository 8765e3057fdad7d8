"""Offers and bids of a replayed trace, as the product's facts."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.ids import AccountId, BidId, HoldId, HostId, OfferId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.domain.span import Window
from listings.domain.events import Gpu, OfferPublished
from marketplace.domain.facts.events import BidPlaced, GpuRequest, LeaseGranted, Workload
from marketplace.domain.leases.renewals import STEP_MAX
from tests.simulation.rules import Rules
from tests.simulation.traces import DAY, GPUS_PER_NODE

NAMES = UUID(int=0x51A1)
BEGAN = datetime.fromisoformat("2026-01-05T00:00:00+00:00")
MARKET, CURRENCY = "main", "USD"
FLOOR, CONTINUING, FRESH = 1.0, 1.5, 6.0
"""Per GPU-hour: what owners ask, and what work pays at most past its first hour, and in it."""
STEP = STEP_MAX.total_seconds()


def bid_of(
    number: int,
    owner: int,
    gpus: int,
    *,
    earliest: float,
    deadline: float,
    fresh: bool,
    now: float,
) -> BidPlaced:
    """Return a bid for the next hour of a job. fresh: for its first; times in seconds."""
    name = uuid5(NAMES, f"bid {number}")
    tenant = uuid5(NAMES, f"owner {owner}")
    return BidPlaced(
        bid_id=BidId(name),
        tenant_id=TenantId(tenant),
        subscriber_id=SubscriberId(tenant),
        user_id=None,
        account_id=AccountId(tenant),
        hold_id=HoldId(name),
        market=MARKET,
        request=GpuRequest(),
        gpus=gpus,
        placement="same-host" if gpus <= GPUS_PER_NODE else "any-hosts",
        duration_seconds=int(STEP),
        earliest_start=moment(earliest),
        deadline=moment(deadline),
        limit=_rate(FRESH if fresh else CONTINUING),
        service_class="on-demand" if fresh else "interruptible",
        patience="immediate",
        workload=Workload(kind="training"),
        cost_centre="",
        burst_allowed=False,
        at=moment(now),
    )


def offer_of(owner: int, node: int, horizon: float) -> OfferPublished:
    """Return the offer of one node, open from the beginning to long after the end."""
    name = f"{owner} {node}"
    tenant = TenantId(uuid5(NAMES, f"owner {owner}"))
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{uuid5(NAMES, f'{name} {index}')}",
            model="P100",
            memory_mib=16_384,
            compute_capability="6.0",
            driver="570.86",
        )
        for index in range(GPUS_PER_NODE)
    )
    return OfferPublished(
        offer_id=OfferId(uuid5(NAMES, f"offer {name}")),
        tenant_id=tenant,
        host_id=HostId(uuid5(NAMES, f"host {name}")),
        market=MARKET,
        region="eu",
        labels=(),
        gpus=gpus,
        windows=(Window(BEGAN, BEGAN + timedelta(seconds=horizon + 400 * DAY)),),
        weekly=None,
        floor=_rate(FLOOR),
        lease_min_seconds=60,
        notice_seconds=int(Rules().notice),
        reclaim_fee_ppm=0,
        workload_kinds=(),
        isolation="whole",
        source="local",
        reserved_for=None,
        at=BEGAN,
    )


def gpus_in(granted: LeaseGranted) -> set[str]:
    """Return the GPUs of a grant."""
    return {uuid for share in granted.shares for uuid in share.gpu_uuids}


def moment(seconds: float) -> datetime:
    """Return the instant so many seconds after the replay began."""
    return BEGAN + timedelta(seconds=seconds)


def seconds(at: datetime) -> float:
    """Return the seconds from the beginning of the replay."""
    return (at - BEGAN).total_seconds()


def _rate(units: float) -> Rate:
    return Rate(round(units * NANOS_PER_UNIT), CURRENCY)
