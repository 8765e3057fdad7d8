"""The market of a replay before its first job: organisations, accounts, hosts, standing offers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.commands import money, parties
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import HostId, OfferId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.domain.parties import PLATFORM_ID, tenant_id_of
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Meta
from listings import commands as listing
from listings.domain.events import Gpu
from listings.domain.terms import OfferTerms
from tests.simulation.traces import FILLER, GPUS_PER_NODE

NAMES = UUID(int=0x51A2)
BEGAN = datetime.fromisoformat("2026-01-05T00:00:00+00:00")
MARKET, CURRENCY = "main", "USD"
MODEL = "P100-16GB"
FLOOR = 1.0
"""Per GPU-hour: what owners ask."""
NOTICE_SECONDS = 120
OPEN_FOR = timedelta(days=700)
BY = Meta(actor="loop:simulation")


def found(store: EventStore, nodes: Sequence[int]) -> None:
    """Let owners join and list their nodes, always open. nodes: how many each owner has."""
    now = BEGAN - timedelta(hours=1)
    money.open_tenant_accounts(
        store,
        tenant_id=PLATFORM_ID,
        title="Platform",
        currency=CURRENCY,
        is_platform=True,
        by=BY,
        now=now,
    )
    _join(store, FILLER, Meta(actor="loop:simulation", tenant_id=tenant_of(FILLER)), now)
    for owner, count in enumerate(nodes):
        by = Meta(actor="loop:simulation", tenant_id=tenant_of(owner))
        _join(store, owner, by, now)
        for node in range(count):
            _list(store, owner, node, by, now)


def _join(store: EventStore, owner: int, by: Meta, now: datetime) -> None:
    parties.register_tenant(
        store,
        slug=_slug(owner),
        title=_slug(owner),
        currency=CURRENCY,
        by=by,
        now=now,
    )
    money.open_tenant_accounts(
        store,
        tenant_id=tenant_of(owner),
        title=_slug(owner),
        currency=CURRENCY,
        is_platform=False,
        by=by,
        now=now,
    )
    money.open_account(
        store,
        account_id=funds_account(unit_of(owner), CURRENCY),
        tenant_id=tenant_of(owner),
        subscriber_id=unit_of(owner),
        kind="chargeback",
        title="Costs",
        currency=CURRENCY,
        overdraft_nanos=None,
        by=by,
        now=now,
    )


def _list(store: EventStore, owner: int, node: int, by: Meta, now: datetime) -> None:
    name = f"host {owner} {node}"
    host_id = HostId(uuid5(NAMES, name))
    listing.register_host(
        store,
        host_id=host_id,
        tenant_id=tenant_of(owner),
        title=name.replace(" ", "-"),
        market=MARKET,
        region="eu",
        by=by,
        now=now,
    )
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{uuid5(NAMES, f'{name} {index}')}",
            model=MODEL,
            memory_mib=16_384,
            compute_capability="6.0",
            driver="570.86",
        )
        for index in range(GPUS_PER_NODE)
    )
    listing.report_inventory(store, host_id=host_id, gpus=gpus, by=by, now=now)
    terms = OfferTerms(
        gpu_uuids=tuple(gpu.uuid for gpu in gpus),
        windows=(Window(now, now + OPEN_FOR),),
        floor=rate(FLOOR),
        lease_min_seconds=60,
        notice_seconds=NOTICE_SECONDS,
    )
    offer_id = OfferId(uuid5(NAMES, f"offer {name}"))
    listing.publish_offer(store, offer_id=offer_id, host_id=host_id, terms=terms, by=by, now=now)


def tenant_of(owner: int) -> TenantId:
    """Return an owner's tenant, as registering its slug names it."""
    return tenant_id_of(_slug(owner))


def _slug(owner: int) -> str:
    return "filler" if owner == FILLER else f"owner-{owner}"


def unit_of(owner: int) -> SubscriberId:
    """Return the one unit of an owner that bids."""
    return SubscriberId(uuid5(NAMES, f"unit {owner}"))


def rate(units: float) -> Rate:
    """Return a price per GPU-hour."""
    return Rate(round(units * NANOS_PER_UNIT), CURRENCY)


def moment(seconds: float) -> datetime:
    """Return the instant so many seconds after the replay began."""
    return BEGAN + timedelta(seconds=seconds)


def seconds(at: datetime) -> float:
    """Return the seconds from the beginning of the replay."""
    return (at - BEGAN).total_seconds()
