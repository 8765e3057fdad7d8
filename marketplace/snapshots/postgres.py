"""Snapshots in a table of PostgreSQL. The table can be emptied at any time."""

from __future__ import annotations

import zlib

import msgspec
import structlog
from django.db import transaction

from marketplace.models import SnapshotRow
from marketplace.snapshots.codec import FORM, checksum, decode, encode
from marketplace.snapshots.port import Snapshot

KEPT = 2
"""Snapshots of a market that stay: the newest, and one more in case that cannot be read."""

log = structlog.get_logger()


class PostgresSnapshots:
    """The newest snapshots of each market."""

    def latest(self, market: str) -> Snapshot | None:
        """Return the newest that can be read. One that cannot is passed over, and said so."""
        for row in SnapshotRow.objects.filter(market=market, form=FORM).order_by("-id")[:KEPT]:
            body = bytes(row.body)
            if bytes(row.checksum) != checksum(body):
                log.error("snapshot.damaged", market=market, snapshot=row.id)
                continue
            try:
                return decode(body)
            except (zlib.error, msgspec.DecodeError) as fault:
                log.error("snapshot.unreadable", market=market, snapshot=row.id, fault=str(fault))
        return None

    def keep(self, snapshot: Snapshot) -> None:
        """Write a row and drop the oldest, together."""
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
            newest = SnapshotRow.objects.filter(market=market).order_by("-id")
            stay = list(newest.values_list("id", flat=True)[:KEPT])
            SnapshotRow.objects.filter(market=market).exclude(id__in=stay).delete()
