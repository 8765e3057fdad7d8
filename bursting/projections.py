"""How the facts of overflow, and of the bids that may spill, become rows."""

from __future__ import annotations

from datetime import timedelta

from bursting.domain.events import (
    BurstDeferred,
    BurstIntended,
    BurstLaunched,
    BurstLost,
    BurstRefused,
    BurstRunning,
    BurstTerminated,
    BurstTerminating,
    HomeMoveAsked,
    HomeMoveEnded,
    StrayEnded,
    StrayFound,
)
from bursting.domain.home_moves import home_bid_of
from bursting.models import BurstInstanceRow, BurstWaitRow, HomeMoveRow, StrayRow, WaitingBidRow
from ledger.domain.ids import BidId
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.facts.events import (
    BidAmended,
    BidCancelled,
    BidExpired,
    BidFilled,
    BidPlaced,
)


def project_burst_instances(recorded: Recorded, rows: Rows) -> None:
    """Keep BurstInstanceRow equal to the streams of the instances, StrayRow to those of strays."""
    kind = BurstInstanceRow
    match recorded.event:
        case BurstIntended() as intent:
            rows.add(_intended(intent))
        case BurstRefused(instance_id=key, reason=reason, at=at):
            rows.change(kind, key, state="refused", reason=reason, over_at=at)
        case BurstLaunched(instance_id=key, cloud_ref=cloud_ref, launched_at=launched_at):
            rows.change(
                kind, key, state="provisioning", cloud_ref=cloud_ref, launched_at=launched_at
            )
        case BurstRunning(instance_id=key, host_id=host_id, offer_id=offer_id, at=at):
            rows.change(
                kind, key, state="running", host_id=host_id, offer_id=offer_id, listed_at=at
            )
        case BurstTerminating(instance_id=key, reason=reason, detail=detail):
            rows.change(kind, key, state="terminating", reason=reason, detail=detail)
        case BurstTerminated(instance_id=key, cost=cost, at=at):
            rows.change(kind, key, state="terminated", cost_nanos=cost.nanos, over_at=at)
        case BurstLost(instance_id=key, cost=cost, at=at):
            rows.change(kind, key, state="lost", reason="lost", cost_nanos=cost.nanos, over_at=at)
        case StrayFound() as found:
            rows.add(_found(found))
        case StrayEnded(stray_id=key, cost=cost, ended_at=ended_at, at=at):
            rows.change(StrayRow, key, over_at=ended_at or at, cost_nanos=cost.nanos)


def project_home_moves(recorded: Recorded, rows: Rows) -> None:
    """Keep HomeMoveRow equal to the tries to move home."""
    match recorded.event:
        case HomeMoveAsked() as asked:
            again = asked.quoted.charge(asked.gpus * asked.again_seconds * 1_000)
            rows.add(
                HomeMoveRow(
                    bid_id=asked.bid_id,
                    lease_id=asked.lease_id,
                    instance_id=asked.instance_id,
                    tenant_id=asked.tenant_id,
                    owner_id=asked.owner_id,
                    number=asked.number,
                    gpus=asked.gpus,
                    seconds=asked.seconds,
                    limit_nanos=asked.limit.nanos_per_gpu_hour,
                    quoted_nanos=asked.quoted.nanos_per_gpu_hour,
                    cloud_nanos=asked.cloud.nanos,
                    move_nanos=again.nanos + asked.egress.nanos,
                    currency=asked.cloud.currency,
                    safe_at=asked.safe_at,
                    starts_at=asked.starts_at,
                    asked_at=asked.at,
                )
            )
        case HomeMoveEnded() as ended:
            rows.change(
                HomeMoveRow,
                home_bid_of(ended.lease_id, ended.number),
                moved=ended.moved,
                reason=ended.reason[:64],
                home_lease_id=ended.home_lease_id,
                saved_nanos=None if ended.saved is None else ended.saved.nanos,
                ended_at=ended.at,
            )


def project_waiting_bids(recorded: Recorded, rows: Rows) -> None:
    """Keep WaitingBidRow equal to the open bids that may burst, BurstWaitRow to why they wait."""
    match recorded.event:
        case BidPlaced() as placed if placed.burst_allowed and not _moves(placed):
            duration = timedelta(seconds=placed.duration_seconds)
            rows.make(
                WaitingBidRow,
                bid_id=placed.bid_id,
                placed_at=placed.at,
                earliest_start=placed.earliest_start,
                latest_start=placed.deadline - duration,
                duration_seconds=placed.duration_seconds,
            )
        case BidAmended(bid_id=key, deadline=deadline):
            row = rows.find(WaitingBidRow, key)
            if row is not None:
                latest_start = deadline - timedelta(seconds=row.duration_seconds)
                rows.change(WaitingBidRow, key, latest_start=latest_start)
        case BidCancelled(bid_id=key) | BidExpired(bid_id=key) | BidFilled(bid_id=key):
            if rows.find(WaitingBidRow, key) is not None:
                rows.remove(WaitingBidRow, key)
            _wait_no_more(key, rows)
        case BurstIntended(bid_id=key):
            _wait_no_more(key, rows)
        case BurstDeferred() as deferred:
            _wait_no_more(deferred.bid_id, rows)
            rows.add(
                BurstWaitRow(
                    bid_id=deferred.bid_id,
                    tenant_id=deferred.tenant_id,
                    reason=deferred.reason,
                    words=deferred.words,
                    tries=deferred.tries,
                    next_at=deferred.next_at,
                    at=deferred.at,
                )
            )


def _moves(placed: BidPlaced) -> bool:
    """Tell if it is a bid for work in a cloud to move home: it never spills."""
    return placed.continues is not None and placed.continues.moves


def _wait_no_more(bid_id: BidId, rows: Rows) -> None:
    if rows.find(BurstWaitRow, bid_id) is not None:
        rows.remove(BurstWaitRow, bid_id)


def _intended(intent: BurstIntended) -> BurstInstanceRow:
    return BurstInstanceRow(
        instance_id=intent.instance_id,
        bid_id=intent.bid_id,
        tenant_id=intent.tenant_id,
        owner_id=intent.owner_id,
        market=intent.market,
        cloud=intent.cloud,
        region=intent.region,
        zone=intent.zone,
        instance_type=intent.instance_type,
        spot=intent.spot,
        gpu_model=intent.gpu_model,
        gpus=intent.gpus,
        attempt=intent.attempt,
        price_nanos=intent.price.nanos_per_gpu_hour,
        floor_nanos=intent.floor.nanos_per_gpu_hour,
        worst_nanos=intent.worst.nanos,
        currency=intent.price.currency,
        state="intended",
        intended_at=intent.at,
    )


def _found(found: StrayFound) -> StrayRow:
    hourly = found.told.hourly
    return StrayRow(
        stray_id=found.stray_id,
        owner_id=found.owner_id,
        tenant_id=found.tenant_id,
        bid_id=found.bid_id,
        instance_id=found.instance_id,
        cloud=found.cloud,
        cloud_ref=found.cloud_ref,
        instance_type=found.told.instance_type,
        zone=found.told.zone,
        spot=found.told.spot,
        gpus=found.told.gpus,
        hourly_nanos=None if hourly is None else hourly.nanos,
        currency=(hourly or found.booked).currency,
        launched_at=found.launched_at,
        found_at=found.at,
    )


PROJECTIONS = (
    Projection(
        name="bursting.instances",
        project=project_burst_instances,
        tables=(BurstInstanceRow, StrayRow),
        on=names_of(
            BurstIntended,
            BurstRefused,
            BurstLaunched,
            BurstRunning,
            BurstTerminating,
            BurstTerminated,
            BurstLost,
            StrayFound,
            StrayEnded,
        ),
    ),
    Projection(
        name="bursting.home-moves",
        project=project_home_moves,
        tables=(HomeMoveRow,),
        on=names_of(HomeMoveAsked, HomeMoveEnded),
    ),
    Projection(
        name="bursting.waiting-bids",
        project=project_waiting_bids,
        tables=(WaitingBidRow, BurstWaitRow),
        is_bulk=True,
        on=names_of(
            BidPlaced,
            BidAmended,
            BidCancelled,
            BidExpired,
            BidFilled,
            BurstIntended,
            BurstDeferred,
        ),
    ),
)
