"""Closed months are brought to finance by themselves: to a folder, or to a bucket of S3.

What is brought is what was frozen when the month was closed. The manifest is written last, so
whoever finds one finds all files that it names. A month that was not brought, for whatever reason
and however long ago, is brought the next time; one that is closed anew is brought anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import structlog

from ledger import exports
from ledger.closing import EVERYTHING
from ledger.commands.exports import note_delivery, note_failed_delivery
from ledger.commands.notices import give_notice
from ledger.domain.export_deliveries import WORDS_LENGTH_MAX
from ledger.domain.notices import to_platform
from ledger.domain.periods import Period, read_period
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.export_failures import said_by_system, why_not_written
from ledger.following import AWAY
from ledger.models import ExportDeliveryRow, PeriodRow

BY = Meta(actor="loop:deliveries")
MANIFEST = "manifest.json"
S3 = "s3://"
TIMEOUT_SECONDS = 30

log = structlog.get_logger()


_place = ""


def bring_to(place: str) -> None:
    """Say where exports are brought, as the operator's setting names it; "": nowhere."""
    global _place
    _place = place


def brought_to() -> str:
    """Return where exports are brought; "": nowhere."""
    return _place


class Target(Protocol):
    """Where exports are brought."""

    name: str

    def put(self, path: str, file: Path) -> None:
        """Put a file there, whole or not at all; the same path is replaced. Raises: OSError."""
        ...


class FolderTarget:
    """A folder that finance reads, such as a share."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def put(self, path: str, file: Path) -> None:
        """Copy it under a draft name, sync and rename."""
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.part")
        with draft.open("wb") as out, file.open("rb") as source:
            while piece := source.read(1 << 20):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        draft.rename(target)


class BucketTarget:
    """A bucket of S3, with a prefix. Loads boto3 when it is first used."""

    def __init__(self, bucket: str, prefix: str, *, region: str, endpoint_url: str) -> None:
        self.name = f"{S3}{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._region, self._endpoint_url = region, endpoint_url
        self._client: Any = None

    def put(self, path: str, file: Path) -> None:
        """Upload it; an object is there whole or not at all."""
        import boto3
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        key = f"{self._prefix}/{path}".lstrip("/")
        try:
            if self._client is None:
                self._client = boto3.client(
                    "s3", region_name=self._region, endpoint_url=self._endpoint_url or None
                )
            self._client.upload_file(str(file), self._bucket, key)
        except (Boto3Error, BotoCoreError, ClientError) as away:
            raise OSError(f"{self.name}: {away}") from away


def target_named(name: str, *, region: str, endpoint_url: str) -> Target:
    """Return the target that a setting names: a folder from / on, or s3://bucket/prefix."""
    if name.startswith(S3):
        bucket, _, prefix = name.removeprefix(S3).partition("/")
        return BucketTarget(bucket, prefix, region=region, endpoint_url=endpoint_url)
    return FolderTarget(Path(name))


def deliver_closed(
    store: EventStore,
    make_target: Callable[[], Target],
    *,
    formats: Sequence[str],
    now: datetime,
) -> int:
    """Bring every closed month that is not there yet, the oldest first; return how many.

    One that fails is told once to the platform's finance people and holds up no other.
    """
    target = make_target()
    there = dict(
        ExportDeliveryRow.objects.filter(target=target.name).values_list("period", "position")
    )
    brought = 0
    for row in PeriodRow.objects.filter(state="closed").exclude(exports=[]).order_by("period"):
        assert row.closed_position is not None
        if there.get(row.period) == row.closed_position:
            continue
        period, position = read_period(row.period), Position(row.closed_position)
        try:
            since = there.get(row.period)
            folder = f"{period}-at-{position}"
            bring(store, target, folder, period, position, formats, since=since)
        except AWAY:
            raise
        except Exception as failed:  # told to finance and logged: other months are brought
            log.warning("exports.not-delivered", period=str(period), error=said_by_system(failed))
            note_failed_delivery(
                store,
                period,
                position=position,
                target=target.name,
                words=why_not_written(failed),
                by=BY,
                now=now,
            )
            tell_failure(
                store,
                f"{period}:{position}",
                what=str(period),
                failed=failed,
                target=target,
                link=f"/finance/months/{period}",
                now=now,
            )
            continue
        note_delivery(
            store,
            period,
            position=position,
            target=target.name,
            formats=formats,
            by=BY,
            now=now,
        )
        brought += 1
    return brought


def bring(
    store: EventStore,
    target: Target,
    folder: str,
    period: Period,
    position: Position,
    formats: Sequence[str],
    *,
    since: int | None = None,
) -> None:
    """Bring a month as of an event, the manifest last. since: what was brought of it before.

    The same files have the same bytes, so that whoever was killed on the way begins anew.
    """
    told = []
    with TemporaryDirectory(prefix="offpeak-exports-") as drafts:
        for name in formats:
            file = f"offpeak-{name}-{period}-at-{position}.{exports.format_named(name).suffix}"
            draft = Path(drafts) / file
            with draft.open("wb") as out:
                said = exports.manifest(
                    EVERYTHING, name, period=period, position=position, write=out.write
                )
            target.put(f"{folder}/{file}", draft)
            draft.unlink()
            of_file: dict[str, Any] = {"file": file, **asdict(exports.with_head(said, store))}
            if since:
                differs = exports.difference(EVERYTHING, said, since=Position(since))
                of_file["differs_from"] = asdict(differs)
            told.append(of_file)
        manifest = Path(drafts) / MANIFEST
        manifest.write_text(json.dumps({"files": told}, indent=1, sort_keys=True) + "\n")
        target.put(f"{folder}/{MANIFEST}", manifest)


def tell_failure(
    store: EventStore,
    key: str,
    *,
    what: str,
    failed: Exception,
    target: Target,
    link: str,
    now: datetime,
) -> None:
    """Tell the platform's finance people that exports are not there, once for each `key`."""
    words, raw = why_not_written(failed), said_by_system(failed)[:WORDS_LENGTH_MAX]
    give_notice(
        store,
        to=to_platform(),
        topic="money",
        key=f"exports:{key}:{target.name}",
        title=f"The exports of {what} could not be brought to finance",
        body=f"{target.name}: {words}\n\nIt is tried again every five minutes. The system said:"
        f" {raw}",
        link=link,
        by=BY,
        now=now,
    )
