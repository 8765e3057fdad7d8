"""A volume that an organisation keeps: its versions, who writes to it, and what may be done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, assert_never
from uuid import UUID

from ledger.domain.ids import BidId, LeaseId
from ledger.domain.refusal import Invalid, Refusal
from marketplace.domain.volumes.events import (
    VolumeClaimed,
    VolumeCreated,
    VolumeEvent,
    VolumeExpired,
    VolumeExpiryNoticed,
    VolumeExtended,
    VolumePaid,
    VolumeReleased,
    VolumeRemoved,
    VolumeResized,
    VolumeUnpaid,
    VolumeVersionKept,
)
from marketplace.domain.volumes.kept_time import NOTHING, KeptTime, Terms
from marketplace.domain.volumes.terms import VolumeUnknown

VERSIONS_KEPT = 3
"""The newest, and those before it that can still be read."""


class VolumeExists(Refusal):
    """Your organisation keeps a volume of that name already."""


class VolumeTooSmall(Refusal):
    """The newest version of the volume has more files than that.

    Bring a smaller version first.
    """


class VolumeEndsSooner(Invalid):
    """A volume can be kept for longer, not for less time. Remove it when it is not needed."""


class VolumeOver(Refusal):
    """The time of that volume is over, or its price is not paid: no new work has it.

    Extend it (`offpeak volumes extend`), or add funds to the account that pays.
    """


class VolumeReadOnly(Refusal):
    """The price of that volume is not paid: it can be read and not written.

    Add funds to the account that pays for it.
    """


class VolumeInUse(Refusal):
    """The work of a bid writes to that volume, or reads it: `bids` and `leases` name it.

    One bid writes to a volume at a time, until an hour after the end of its lease where its last
    version has not come. Withdraw it, wait for its end, or mount the volume read-only.
    """


class VolumeConflict(Refusal):
    """The volume is further than what this version goes on from: `version` is its newest."""


class VolumeFull(Refusal):
    """The files have more bytes than the volume may hold.

    Give it more (`offpeak volumes resize`), or keep less in it.
    """

    status = 413


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a volume's files. base: the version that its work found, or was brought to."""

    number: int
    manifest: str
    files: int
    size_bytes: int
    lease_id: LeaseId | None
    base: int

    def is_of(self, lease_id: LeaseId | None) -> bool:
        """Tell if the work of that lease made it."""
        return lease_id is not None and self.lease_id == lease_id


@dataclass(frozen=True, slots=True)
class Writer:
    """The bid whose work writes; before: the one it continues, of which a version may come."""

    bid_id: BidId
    before: BidId | None
    since: datetime

    @property
    def bids(self) -> tuple[BidId, ...]:
        """Return those who may write, the one who takes over first."""
        return (self.bid_id,) if self.before is None else (self.bid_id, self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume as its stream tells it. One that was removed may be created again under its name.

    versions: those that are kept, oldest first; of those that one lease made while it ran, the
    newest, so that its checkpoints do not push out what was there before it. number: of the
    newest ever. kept: what was kept for how long, over all that ever was of it.
    """

    STREAM: ClassVar[str] = "volume"

    created: VolumeCreated
    quota_bytes: int
    nanos_per_gib_month: int
    expires_at: datetime
    versions: tuple[Version, ...] = ()
    number: int = 0
    writer: Writer | None = None
    noticed: VolumeExpiryNoticed | None = None
    unpaid: VolumeUnpaid | None = None
    expired: VolumeExpired | None = None
    removed_at: datetime | None = None
    kept: KeptTime = NOTHING

    @property
    def volume_id(self) -> UUID:
        return self.created.volume_id

    @property
    def newest(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files that are paid for."""
        return self.newest.size_bytes if self.newest and self.removed_at is None else 0

    def is_read_only(self, now: datetime) -> bool:
        """Tell if nothing new may be written for want of money."""
        return self.unpaid is not None and now >= self.unpaid.read_only_at

    @classmethod
    def evolve(cls, state: Volume | None, event: VolumeEvent, /) -> Volume:
        """Return the volume after `event`."""
        if isinstance(event, VolumeCreated):
            return cls(
                created=event,
                quota_bytes=event.quota_bytes,
                nanos_per_gib_month=event.nanos_per_gib_month,
                expires_at=event.expires_at,
                kept=NOTHING if state is None else state.kept,
            )
        assert state is not None
        match event:
            case VolumeResized():
                return replace(state, quota_bytes=event.quota_bytes)
            case VolumeExtended():
                longer = replace(
                    state,
                    expires_at=event.expires_at,
                    nanos_per_gib_month=event.nanos_per_gib_month,
                    noticed=None,
                )
                if state.expired is not None and state.expired.because == "time":
                    longer = replace(longer, expired=None)
                return longer._stepped(event.at)
            case VolumeVersionKept():
                return state._versioned(event)._stepped(event.at)
            case VolumeClaimed():
                return replace(state, writer=Writer(event.bid_id, event.after, event.at))
            case VolumeReleased():
                return replace(state, writer=_without(state.writer, event.bid_id))
            case VolumeExpiryNoticed():
                return replace(state, noticed=event)
            case VolumeUnpaid():
                return replace(state, unpaid=event)
            case VolumePaid():
                over = state.expired
                back = over is not None and over.because == "unpaid"
                return replace(state, unpaid=None, expired=None if back else over)
            case VolumeExpired():
                return replace(state, expired=event)
            case VolumeRemoved():
                return replace(state, removed_at=event.at)._stepped(event.at)
            case _:
                assert_never(event)

    def _versioned(self, event: VolumeVersionKept) -> Volume:
        before, base = self.versions, event.version - 1
        if before and before[-1].is_of(event.lease_id):
            before, base = before[:-1], before[-1].base
        kept = Version(
            event.version, event.manifest, event.files, event.size_bytes, event.lease_id, base
        )
        return replace(self, versions=(*before, kept)[-VERSIONS_KEPT:], number=event.version)

    def _stepped(self, at: datetime) -> Volume:
        """Return the volume with what is kept from `at` on."""
        made = self.created
        terms = Terms(self.nanos_per_gib_month, made.account_id, made.currency, made.cost_centre)
        return replace(self, kept=self.kept.after(at, self.size_bytes, terms))


def _without(writer: Writer | None, bid_id: BidId) -> Writer | None:
    if writer is None:
        return None
    if writer.bid_id == bid_id:
        # What was to take over came to nothing while the work before it still runs.
        before = writer.before
        return None if before is None else replace(writer, bid_id=before, before=None)
    return replace(writer, before=None) if writer.before == bid_id else writer


def need_kept(volume: Volume | None, *, name: str = "") -> Volume:
    """Return the volume, if there is one.

    Raises: VolumeUnknown.
    """
    if volume is None or volume.removed_at is not None:
        raise VolumeUnknown(name=name[:64] or (volume.created.volume if volume else ""))
    return volume


def need_readable(volume: Volume | None, *, name: str) -> Volume:
    """Return a volume that new work may read.

    Raises: VolumeUnknown, VolumeOver.
    """
    kept = need_kept(volume, name=name)
    if kept.expired is not None:
        raise VolumeOver(name=name, removed_at=kept.expired.removed_at)
    return kept


def need_turn(volume: Volume, bid_id: BidId | None, over: Collection[BidId]) -> None:
    """Refuse those who are not to write now. bid_id: None: a person. Raises: VolumeInUse."""
    writer = volume.writer
    if bid_id is None:
        free = writer is None or all(each in over for each in writer.bids)
    else:
        free = writer is not None and bid_id in writer.bids
    if not free:
        bids = [] if writer is None else [str(writer.bid_id)]
        raise VolumeInUse(name=volume.created.volume, bids=bids, leases=[])
