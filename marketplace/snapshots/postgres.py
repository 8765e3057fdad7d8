"""Snapshots in a table of PostgreSQL. The table can be emptied at any time."""

from __future__ import annotations

import zlib

import msgspec
import structlog
from django.db import transaction

from marketplace.models import SnapshotRow
from marketplace.snapshots.codec import FORM, checksum, decode, encode
from marketplace.snapshots.port import NEWEST, Snapshot, thinned

log = structlog.get_logger()


class PostgresSnapshots:
    """The snapshots of each market: the newest, and ever fewer the older they are."""

    def latest(self, market: str) -> Snapshot | None:
        """Return the newest that can be read. One that cannot is passed over, and said so."""
        for row in SnapshotRow.objects.filter(market=market, form=FORM).order_by("-id")[:NEWEST]:
            snapshot = _read(row)
            if snapshot is not None:
                return snapshot
        return None

    def keep(self, snapshot: Snapshot) -> None:
        """Write a row and drop some of the older ones, together."""
        market, body = snapshot.state.market, encode(snapshot)
        with transaction.atomic():
            SnapshotRow.objects.create(
                market=market,
                form=FORM,
                position=snapshot.tail.position,
                version=snapshot.version,
                checksum=checksum(body),
                body=body,
            )
            rows = SnapshotRow.objects.filter(market=market)
            ours = dict(rows.filter(form=FORM).order_by("id").values_list("position", "id"))
            stay = [ours[position] for position in thinned(list(ours))]
            rows.exclude(id__in=stay).delete()

    def versions(self, market: str) -> list[int]:
        """Return the versions of which there are snapshots, rising."""
        rows = SnapshotRow.objects.filter(market=market, form=FORM)
        return sorted(set(rows.values_list("version", flat=True)))

    def at(self, market: str, version: int) -> Snapshot | None:
        """Return the newest snapshot of a version, if it can be read."""
        rows = SnapshotRow.objects.filter(market=market, form=FORM, version=version)
        row = rows.order_by("-id").first()
        return None if row is None else _read(row)


def _read(row: SnapshotRow) -> Snapshot | None:
    body = bytes(row.body)
    if bytes(row.checksum) != checksum(body):
        log.error("snapshot.damaged", market=row.market, snapshot=row.id)
        return None
    try:
        return decode(body)
    except (zlib.error, msgspec.DecodeError) as fault:
        log.error("snapshot.unreadable", market=row.market, snapshot=row.id, fault=str(fault))
        return None
