"""What may be asked about volumes: to create, change, claim, write and remove one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.ids import AccountId, BidId, HostId, LeaseId, SubscriberId, TenantId, UserId
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.close_reasons import HOST_SILENT
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.leases.lease import Lease
from marketplace.domain.volumes import expiry, keeping, writing
from marketplace.domain.volumes.events import Because, VolumeEvent
from marketplace.domain.volumes.terms import volume_id_of
from marketplace.domain.volumes.volume import Volume, need_kept, need_readable

WRITER_WAITED_FOR = timedelta(hours=1)
"""So long after the end of a lease its last version may come before somebody else writes; of a host
that is silent nobody waits for one."""
STRAY_AFTER = timedelta(hours=1)
"""A claim whose bid is not there by then is of none."""


def create_volume(
    store: EventStore,
    *,
    tenant_id: TenantId,
    subscriber_id: SubscriberId,
    account_id: AccountId,
    cost_centre: str,
    name: str,
    quota_bytes: int,
    nanos_per_gib_month: int,
    currency: str,
    expires_at: datetime,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID, Position]:
    """Keep a volume, for which that account pays.

    Raises: AccountUnknown, and what `keeping.create` raises.
    """
    volume_id = volume_id_of(tenant_id, name)
    if load(store, Account, account_id) is None:
        raise AccountUnknown(account_id=account_id)
    position = record(
        store,
        Volume,
        volume_id,
        lambda kept: keeping.create(
            kept,
            volume_id=volume_id,
            tenant_id=tenant_id,
            subscriber_id=subscriber_id,
            account_id=account_id,
            cost_centre=cost_centre,
            name=name,
            quota_bytes=quota_bytes,
            nanos_per_gib_month=nanos_per_gib_month,
            currency=currency,
            expires_at=expires_at,
            user_id=user_id,
            now=now,
        ),
        by=by,
    )
    return volume_id, position


def change_volume(
    store: EventStore,
    *,
    volume_id: UUID,
    quota_bytes: int | None,
    expires_at: datetime | None,
    nanos_per_gib_month: int,
    by: Meta,
    now: datetime,
) -> Position:
    """Give a volume another size, more time, or both; None: as it is.

    Raises: what `keeping.resize` and `keeping.extend` raise.
    """

    def decide(kept: Volume | None) -> Sequence[VolumeEvent]:
        changed: list[VolumeEvent] = []
        need_kept(kept)
        if quota_bytes is not None:
            changed += keeping.resize(kept, quota_bytes=quota_bytes, now=now)
        if expires_at is not None:
            changed += keeping.extend(
                kept, expires_at=expires_at, nanos_per_gib_month=nanos_per_gib_month, now=now
            )
        return changed

    return record(store, Volume, volume_id, decide, by=by)


def keep_version(
    store: EventStore,
    *,
    volume_id: UUID,
    base: int,
    manifest: str,
    files: int,
    size_bytes: int,
    bid_id: BidId | None = None,
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    final: bool = False,
    by: Meta,
    now: datetime,
) -> Position:
    """Take note of a volume's next version, whose blobs are there; the same again: the same.

    bid_id: whose work left it; final: it was the last.

    Raises: what `writing.keep_version` raises.
    """
    over = writers_over(store, volume_id, now=now)

    def decide(kept: Volume | None) -> Sequence[VolumeEvent]:
        changed: list[VolumeEvent] = []
        changed += writing.keep_version(
            kept,
            base=base,
            manifest=manifest,
            files=files,
            size_bytes=size_bytes,
            bid_id=bid_id,
            over=over,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            now=now,
        )
        if final and bid_id is not None:
            changed += writing.release(kept, bid_id=bid_id, now=now)
        return changed

    return record(store, Volume, volume_id, decide, by=by)


def release_volume(
    store: EventStore, *, volume_id: UUID, bid_id: BidId, by: Meta, now: datetime
) -> Position:
    """Take note that the work of a bid writes no more; again changes nothing."""
    return record(
        store, Volume, volume_id, lambda kept: writing.release(kept, bid_id=bid_id, now=now), by=by
    )


def remove_volume(
    store: EventStore,
    *,
    volume_id: UUID,
    because: Because = "consumer",
    by: Meta,
    now: datetime,
) -> Position:
    """Keep a volume no more.

    Raises: VolumeUnknown, VolumeInUse.
    """
    over = writers_over(store, volume_id, now=now)
    return record(
        store,
        Volume,
        volume_id,
        lambda kept: keeping.remove(kept, over=over, because=because, now=now),
        by=by,
    )


def tick_volume(store: EventStore, *, volume_id: UUID, by: Meta, now: datetime) -> int:
    """Bring a volume to where the clock says it belongs; return how much that changed."""
    if not expiry.tick(load(store, Volume, volume_id), now=now):
        return 0
    record(store, Volume, volume_id, lambda kept: expiry.tick(kept, now=now), by=by)
    return 1


def note_paid(
    store: EventStore, *, volume_id: UUID, is_paid: bool, by: Meta, now: datetime
) -> Position:
    """Take note whether what is owed for a volume could be paid; again changes nothing."""

    def decide(kept: Volume | None) -> Sequence[VolumeEvent]:
        return expiry.paid(kept, now=now) if is_paid else expiry.unpaid(kept, now=now)

    return record(store, Volume, volume_id, decide, by=by)


def claiming(store: EventStore, placed: BidPlaced, *, by: Meta, now: datetime) -> list[Part]:
    """Return what sees to the volumes of a bid: they are there, and its work may write to them.

    Nothing is written to those that it only reads.
    """

    def part(name: str, writable: bool) -> Part:
        volume_id = volume_id_of(placed.tenant_id, name)
        over = writers_over(store, volume_id, now=now) if writable else ()
        continues = placed.continues.bid_id if placed.continues else None

        def decide(kept: Volume | None) -> Sequence[VolumeEvent]:
            if not writable:
                need_readable(kept, name=name)
                return []
            return writing.claim(
                kept,
                name=name,
                bid_id=placed.bid_id,
                continues=continues,
                over=over,
                now=now,
            )

        return Part(Volume, volume_id, decide, by)

    return [part(each.name, each.writable) for each in placed.workload.volumes]


def is_awaited(store: EventStore, tenant_id: TenantId, name: str, *, bid_id: BidId) -> bool:
    """Tell if the last version of a volume by the work of a bid has not come."""
    kept = load(store, Volume, volume_id_of(tenant_id, name))
    return kept is not None and kept.writer is not None and bid_id in kept.writer.bids


def writers_over(store: EventStore, volume_id: UUID, *, now: datetime) -> Collection[BidId]:
    """Return those of a volume's writers that write no more, whether or not they said so."""
    kept = load(store, Volume, volume_id)
    if kept is None or kept.writer is None:
        return ()
    known = (kept.writer.bid_id, kept.writer.before)
    return tuple(
        each for each in known if each and _is_over(store, each, since=kept.writer.since, now=now)
    )


def _is_over(store: EventStore, bid_id: BidId, *, since: datetime, now: datetime) -> bool:
    bid = load(store, Bid, bid_id)
    if bid is None:
        return now >= since + STRAY_AFTER
    if bid.state != "filled":
        return bid.state != "open"
    lease = None if bid.lease_id is None else load(store, Lease, bid.lease_id)
    if lease is None or not lease.over:
        return False
    if lease.ending_reason == HOST_SILENT:
        return True
    return not lease.started or now >= lease.right_ends_at + WRITER_WAITED_FOR
