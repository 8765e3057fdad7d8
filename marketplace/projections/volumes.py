"""How volumes become rows: one for each, kept after its end for what is still to be charged."""

from __future__ import annotations

from typing import Any, assert_never, cast, get_args

from ledger.domain.events import StorageCharged
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
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
from marketplace.domain.volumes.volume import VERSIONS_KEPT
from marketplace.models.volumes import VolumeRow

STILL_OPEN: dict[str, Any] = {"expired_because": "", "removed_at": None}


def project_volumes(recorded: Recorded, rows: Rows) -> None:
    """Keep VolumeRow equal to the streams of volumes."""
    event = cast(VolumeEvent | StorageCharged, recorded.event)
    if isinstance(event, StorageCharged):
        found = rows.find(VolumeRow, event.volume_id)
        if found is not None:
            total = found.charged_nanos + event.charged.nanos
            told = {"charged_until": event.window.ends_at, "charged_nanos": total}
            rows.change(VolumeRow, event.volume_id, **told)
        return
    if isinstance(event, VolumeCreated):
        _create(event, rows)
        return
    row = rows.get(VolumeRow, event.volume_id)
    rows.change(VolumeRow, event.volume_id, **_changed(row, event))


def _create(made: VolumeCreated, rows: Rows) -> None:
    given: dict[str, Any] = {
        "tenant_id": made.tenant_id,
        "subscriber_id": made.subscriber_id,
        "account_id": made.account_id,
        "cost_centre": made.cost_centre,
        "name": made.volume,
        "user_id": made.user_id,
        "quota_bytes": made.quota_bytes,
        "nanos_per_gib_month": made.nanos_per_gib_month,
        "currency": made.currency,
        "number": 0,
        "manifest": "",
        "files": 0,
        "size_bytes": 0,
        "versions": [],
        "writer_id": None,
        "created_at": made.at,
        "expires_at": made.expires_at,
        "noticed_at": None,
        "unpaid_at": None,
        "read_only_at": None,
        "is_removed": False,
        **STILL_OPEN,
    }
    if rows.find(VolumeRow, made.volume_id) is None:
        rows.make(VolumeRow, volume_id=made.volume_id, **given)
    else:
        rows.change(VolumeRow, made.volume_id, **given)


def _changed(row: VolumeRow, event: VolumeEvent) -> dict[str, Any]:
    """Return what an event changes of a volume's row."""
    match event:
        case VolumeCreated():
            raise AssertionError("it makes the row")
        case VolumeResized():
            return {"quota_bytes": event.quota_bytes}
        case VolumeExtended():
            again = STILL_OPEN if row.expired_because == "time" else {}
            price = event.nanos_per_gib_month
            longer = {"expires_at": event.expires_at, "noticed_at": None}
            return {**longer, "nanos_per_gib_month": price, **again}
        case VolumeVersionKept():
            return _with_version(row, event)
        case VolumeClaimed():
            return {"writer_id": event.bid_id}
        case VolumeReleased():
            return {"writer_id": None} if row.writer_id == event.bid_id else {}
        case VolumeExpiryNoticed():
            return {"noticed_at": event.at, "expires_at": event.expires_at}
        case VolumeUnpaid():
            return {"unpaid_at": event.at, "read_only_at": event.read_only_at}
        case VolumePaid():
            again = STILL_OPEN if row.expired_because == "unpaid" else {}
            return {"unpaid_at": None, "read_only_at": None, **again}
        case VolumeExpired():
            return {"expired_because": event.because, "removed_at": event.removed_at}
        case VolumeRemoved():
            gone = {"manifest": "", "files": 0, "size_bytes": 0, "versions": []}
            return {"is_removed": True, "removed_at": event.at, "writer_id": None, **gone}
        case _:
            assert_never(event)


def _with_version(row: VolumeRow, kept: VolumeVersionKept) -> dict[str, Any]:
    newest = {
        "number": kept.version,
        "manifest": kept.manifest,
        "files": kept.files,
        "size_bytes": kept.size_bytes,
    }
    told = {
        **newest,
        "lease_id": None if kept.lease_id is None else str(kept.lease_id),
        "user_id": None if kept.user_id is None else str(kept.user_id),
        "at": kept.at.isoformat(),
    }
    before = row.versions
    if before and told["lease_id"] is not None and before[-1]["lease_id"] == told["lease_id"]:
        before = before[:-1]  # of a lease's checkpoints the newest alone
    return {**newest, "versions": [*before, told][-VERSIONS_KEPT:]}


PROJECTIONS = (
    Projection(
        name="marketplace.volumes",
        project=project_volumes,
        tables=(VolumeRow,),
        on=names_of(*get_args(VolumeEvent), StorageCharged),
    ),
)
