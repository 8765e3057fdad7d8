"""From blobs to versions of volumes, and what the clock does with volumes.

A version uses its blobs as a folder does (`marketplace.folders`), and its event and its uses commit
together. What comes with a version takes the uses of those that are kept no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger.commands.storage import charge_volume
from ledger.domain.account_ids import funds_account
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.ids import AccountId, BidId, HostId, LeaseId, TenantId, UserId
from ledger.domain.money import nanos_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load
from ledger.turns import each_alone, turns_of
from marketplace.commands import volumes as commands
from marketplace.domain.files.folder import ASKED_MAX, TooManyBlobs
from marketplace.domain.volumes import charging
from marketplace.domain.volumes.events import Because
from marketplace.domain.volumes.expiry import is_due_to_go
from marketplace.domain.volumes.terms import (
    GIB,
    LIFE_DEFAULT,
    VolumeUnknown,
    need_name,
    need_room,
    version_id_of,
)
from marketplace.domain.volumes.volume import (
    VERSIONS_KEPT,
    Volume,
    VolumeFull,
    VolumeInUse,
    need_kept,
)
from marketplace.folders import all_used, ask_missing, whole
from marketplace.models.folders import BlobUseRow
from marketplace.models.volumes import VolumeRow
from marketplace.queries.bids import Unit
from marketplace.queries.volumes import mounted, quotas_of, to_see_to
from marketplace.storage.port import BlobKey, Link, Storage

BATCH = 200
CLOCK = Meta(actor="loop:volumes")
SETTLED_WITHIN = timedelta(days=90)
"""So long after its end what is owed for a volume is asked for."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What the platform offers: its price now, and how much an organisation may have."""

    nanos_per_gib_month: int
    currency: str
    bytes_max: int


def offered() -> Offered:
    """Return what this installation offers."""
    env = settings.ENV
    return Offered(nanos_of(env.volume_price), env.currency, env.volumes_gib_max * GIB)


def make_volume(
    store: EventStore,
    *,
    tenant_id: TenantId,
    unit: Unit,
    name: str,
    quota_bytes: int,
    expires_at: datetime | None,
    cost_centre: str = "",
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID, Position]:
    """Keep a volume, for which that unit pays at today's price; expires_at None: for 30 days.

    Raises: VolumeNameUnfit, VolumesFull, and what `commands.create_volume` raises.
    """
    need_name(name)
    now_offered = offered()
    need_room(quotas=quotas_of(tenant_id), more=quota_bytes, bytes_max=now_offered.bytes_max)
    return commands.create_volume(
        store,
        tenant_id=tenant_id,
        subscriber_id=unit.subscriber_id,
        account_id=funds_account(unit.subscriber_id, now_offered.currency),
        cost_centre=cost_centre or unit.cost_centre,
        name=name,
        quota_bytes=quota_bytes,
        nanos_per_gib_month=now_offered.nanos_per_gib_month,
        currency=now_offered.currency,
        expires_at=expires_at or now + LIFE_DEFAULT,
        user_id=user_id,
        by=by,
        now=now,
    )


def change_volume(
    store: EventStore,
    volume: VolumeRow,
    *,
    quota_bytes: int | None = None,
    expires_at: datetime | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Give a volume another size, or more time at today's price; None: as it is.

    Raises: VolumesFull, and what `commands.change_volume` raises.
    """
    now_offered = offered()
    if quota_bytes is not None and quota_bytes > volume.quota_bytes:
        others = quotas_of(volume.tenant_id, but=volume.volume_id)
        need_room(quotas=others, more=quota_bytes, bytes_max=now_offered.bytes_max)
    return commands.change_volume(
        store,
        volume_id=volume.volume_id,
        quota_bytes=quota_bytes,
        expires_at=expires_at,
        nanos_per_gib_month=now_offered.nanos_per_gib_month,
        by=by,
        now=now,
    )


class VolumeAwaited(Refusal):
    """The last version of the work before it is on its way: ask again in a moment."""


def missing_of(
    storage: Storage,
    tenant_id: TenantId,
    sizes: Mapping[str, int],
    *,
    quota_bytes: int,
    files_bytes_max: int,
    now: datetime,
) -> dict[str, Link]:
    """Return where to send those blobs that are not there; room for them is kept for a day.

    quota_bytes: of the volume they are for. files_bytes_max: what the organisation's folders may
    have: versions of volumes find room beside them, with those that are kept and the next one.

    Raises: VolumeFull, and what `folders.ask_missing` raises.
    """
    if sum(sizes.values()) > quota_bytes:
        raise VolumeFull(bytes=sum(sizes.values()), bytes_max=quota_bytes)
    room = files_bytes_max + (VERSIONS_KEPT + 1) * sum(quotas_of(tenant_id))
    return ask_missing(storage, tenant_id, sizes, quota=room, now=now, of_volumes=True)


def keep_version(
    store: EventStore,
    storage: Storage,
    tenant_id: TenantId,
    volume_id: UUID,
    sha256: str,
    *,
    base: int,
    by: Meta,
    now: datetime,
    bid_id: BidId | None = None,
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    final: bool = False,
) -> tuple[int, Position]:
    """Keep the version whose manifest is the blob of this name, once all its blobs are there.

    Return its number. bid_id: whose work left it; final: it was the last.

    Raises: what `folders.whole` and `commands.keep_version` raise.
    """
    with whole(storage, tenant_id, sha256, now=now) as (manifest, blobs):
        position = commands.keep_version(
            store,
            volume_id=volume_id,
            base=base,
            manifest=sha256,
            files=manifest.entries,
            size_bytes=manifest.size_bytes,
            bid_id=bid_id,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            final=final,
            by=by,
            now=now,
        )
        kept = load(store, Volume, volume_id)
        assert kept is not None, "it has just been written"
        uses = BlobUseRow.objects.filter(volume_id=volume_id)
        uses.exclude(
            folder_id__in=[version_id_of(volume_id, each.number) for each in kept.versions]
        ).delete()
        newest = version_id_of(volume_id, kept.number)
        BlobUseRow.objects.bulk_create(
            [BlobUseRow(folder_id=newest, blob_id=row.id, volume_id=volume_id) for row in blobs],
            ignore_conflicts=True,
        )
    return kept.number, position


def links_to(
    storage: Storage, tenant_id: UUID, volume_id: UUID, sha256s: Sequence[str]
) -> dict[str, Link]:
    """Return where to read these blobs of a volume, of any version that is kept.

    Raises: TooManyBlobs; VolumeUnknown for a blob that is none of the volume's.
    """
    if len(sha256s) > ASKED_MAX:
        raise TooManyBlobs(blobs=len(sha256s), blobs_max=ASKED_MAX)
    if not all_used(tenant_id, sha256s, volume_id=volume_id):
        raise VolumeUnknown()
    return {each: storage.get_link(BlobKey(tenant_id, each)) for each in sha256s}


def read_by_work(
    store: EventStore, volume_id: UUID, *, bid_id: BidId, writable: bool, by: Meta, now: datetime
) -> Volume:
    """Return a volume for the work of a bid; where it writes, once the work before it is done.

    Raises: VolumeUnknown; VolumeInUse where another writes; VolumeAwaited.
    """
    kept = need_kept(load(store, Volume, volume_id))
    if not writable:
        return kept
    writer = kept.writer
    if writer is None or bid_id not in (writer.bid_id, writer.before):
        bids = [] if writer is None else [str(writer.bid_id)]
        raise VolumeInUse(name=kept.created.volume, bids=bids, leases=[])
    if writer.before is not None and writer.bid_id == bid_id:
        if writer.before not in commands.writers_over(store, volume_id, now=now):
            raise VolumeAwaited(name=kept.created.volume)
        commands.release_volume(
            store, volume_id=volume_id, bid_id=writer.before, by=by.step("before"), now=now
        )
    return kept


def remove_volume(
    store: EventStore,
    tenant_id: UUID,
    volume_id: UUID,
    name: str,
    *,
    because: Because = "consumer",
    by: Meta,
    now: datetime,
) -> Position:
    """Keep a volume no more; blobs that nothing else has go a while later.

    Raises: VolumeUnknown, VolumeInUse.
    """
    bids, leases = mounted(tenant_id, name)
    if bids or leases:
        raise VolumeInUse(
            name=name,
            bids=[str(each) for each in bids],
            leases=[str(each) for each in leases],
        )
    with transaction.atomic():
        position = commands.remove_volume(
            store, volume_id=volume_id, because=because, by=by, now=now
        )
        BlobUseRow.objects.filter(volume_id=volume_id).delete()
    return position


def see_to_volumes(store: EventStore, *, now: datetime) -> int:
    """Bring the next volumes to where the clock says they belong; return how many that changed.

    What an expired volume has goes once its grace is over, and no work finds it any more.
    """
    page = turns_of(store, "volumes").take(
        lambda after, limit: to_see_to(after, limit, since=now - SETTLED_WITHIN), BATCH
    )

    def see_to(volume_id: UUID) -> int:
        changed = _charge(store, volume_id, now)
        changed += commands.tick_volume(store, volume_id=volume_id, by=CLOCK, now=now)
        kept = load(store, Volume, volume_id)
        if kept is None or not is_due_to_go(kept, now=now):
            return changed
        made, over = kept.created, kept.expired
        assert over is not None
        try:
            remove_volume(
                store,
                made.tenant_id,
                volume_id,
                made.volume,
                because=over.because,
                by=CLOCK,
                now=now,
            )
        except VolumeInUse:
            return changed  # the work that has it ends before its files do
        return changed + 1

    return each_alone(
        [volume_id for (volume_id,) in page],
        see_to,
        event="volume.stuck",
        told=lambda volume_id: {"volume": str(volume_id)},
    )


def _charge(store: EventStore, volume_id: UUID, now: datetime) -> int:
    """Charge what was kept in a volume up to the last full hour; note whether it could be paid.

    Return how many accounts were charged.
    """
    kept = load(store, Volume, volume_id)
    if kept is None:
        return 0
    charged, is_paid = 0, True
    for account_id in charging.payers_of(kept):
        try:
            charged += _charge_one(store, kept, account_id, now)
        except FundsInsufficient:
            is_paid = is_paid and account_id != kept.created.account_id
    if is_paid is (kept.unpaid is not None):
        commands.note_paid(store, volume_id=volume_id, is_paid=is_paid, by=CLOCK, now=now)
    return charged


def _charge_one(store: EventStore, kept: Volume, account_id: AccountId, now: datetime) -> int:
    """Charge one account for a volume. Raises: FundsInsufficient, also where a part was paid."""
    until, charged = charging.charged_until(now), 0
    for _ in range(2):  # what the account has not for all of it is refused at the second time
        payer = load(store, Account, account_id)
        before = None if payer is None else payer.stored.get(kept.volume_id)
        pieces = charging.pieces_of(kept, account_id=account_id, before=before, until=until)
        if not pieces:
            break
        charge_volume(
            store,
            account_id=account_id,
            pieces=pieces,
            platform_id=PLATFORM_ID,
            by=CLOCK,
            now=now,
        )
        charged = 1
    return charged
