"""Whether what folders and volumes are made of is in storage as it was kept. For operators."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from django.db.models import Exists, Max, Min, OuterRef, QuerySet

from marketplace.domain.volumes.terms import version_id_of
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.models.volumes import VolumeRow
from marketplace.storage.port import BlobKey, Storage, StorageAway

State = Literal["right", "missing", "damaged", "not read"]

NEWEST, RANDOM = 20, 20
"""So many blobs are looked at where not all are asked for."""
SAMPLE_SECONDS = 20.0
"""So long at most, besides the answer that is waited for then."""
NAMED_MAX = 5
USES_NAMED_MAX = 3
BATCH, READ_AT_ONCE = 500, 4
PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Broken:
    """A blob that is not as it was kept. path: its place in storage. uses: what has it."""

    path: str
    state: State
    uses: tuple[str, ...]


@dataclass(slots=True)
class Looked:
    """What was found. used: all blobs that something has; unused: those that nothing has.

    away: what the storage, or its disk, said instead of an answer; empty: it did answer.
    """

    used: int
    unused: int
    states: Counter[State] = field(default_factory=Counter)
    named: list[Broken] = field(default_factory=list)
    away: str = ""

    @property
    def read(self) -> int:
        """Return how many are known to be right or wrong."""
        return self.states.total() - self.states["not read"]

    @property
    def wrong(self) -> int:
        """Return how many are missing or damaged."""
        return self.states["missing"] + self.states["damaged"]


def look_at_blobs(storage: Storage, *, whole: bool) -> Looked:
    """Read blobs that folders and volumes have, and hash them.

    whole: all of them, else the newest and some others. Nothing is changed. Of no blob more than a
    piece is in memory.
    """
    used = Exists(BlobUseRow.objects.filter(blob_id=OuterRef("id")))
    every, unused = BlobRow.objects.count(), BlobRow.objects.filter(~used).count()
    looked = Looked(every - unused, unused)
    reader = _Reader(storage, None if whole else time.monotonic() + SAMPLE_SECONDS)
    rows = BlobRow.objects.filter(used)
    with ThreadPoolExecutor(READ_AT_ONCE, "blobs") as threads:
        for some in _all(rows) if whole else [_sample(rows)]:
            for row, state in zip(some, threads.map(reader.state_of, some), strict=True):
                if state in ("missing", "damaged"):
                    uses = _uses_of(row)
                    if not uses:
                        continue  # it was let go of meanwhile
                    if len(looked.named) < NAMED_MAX:
                        looked.named.append(Broken(_key(row).path, state, uses))
                looked.states[state] += 1
            if reader.away:
                break
    looked.away = reader.away
    return looked


class _Reader:
    """Reads blobs, from several threads, until the storage does not answer or the time is over."""

    def __init__(self, storage: Storage, until: float | None) -> None:
        self._storage, self._until, self.away = storage, until, ""

    def state_of(self, row: BlobRow) -> State:
        if self.away or (self._until is not None and time.monotonic() > self._until):
            return "not read"
        try:
            return self._read(_key(row))
        except (StorageAway, OSError) as lost:
            self.away = str(lost.__cause__ or lost) or type(lost).__name__
            return "not read"

    def _read(self, key: BlobKey) -> State:
        opened = self._storage.open(key)
        if opened is None:
            return "missing"
        digest = hashlib.sha256()
        with closing(opened):
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
        return "right" if digest.hexdigest() == key.sha256 else "damaged"


def _key(row: BlobRow) -> BlobKey:
    return BlobKey(row.tenant_id, row.sha256)


def _all(rows: QuerySet[BlobRow]) -> Iterator[Sequence[BlobRow]]:
    after = 0
    while some := list(rows.filter(id__gt=after).order_by("id")[:BATCH]):
        yield some
        after = some[-1].id


def _sample(rows: QuerySet[BlobRow]) -> Sequence[BlobRow]:
    found = {row.id: row for row in rows.order_by("-id")[:NEWEST]}
    ends = BlobRow.objects.aggregate(first=Min("id"), last=Max("id"))
    for _ in range(RANDOM if found else 0):
        drawn = random.randint(ends["first"], ends["last"])
        row = rows.filter(id__gte=drawn).order_by("id").first()
        if row is not None:
            found[row.id] = row
    return list(found.values())


def _uses_of(row: BlobRow) -> tuple[str, ...]:
    """Name what has a blob now: folders, results of leases, versions of volumes."""
    uses = list(BlobUseRow.objects.filter(blob_id=row.id).order_by("-id")[:USES_NAMED_MAX])
    folders = FolderRow.objects.in_bulk([each.folder_id for each in uses])
    volumes = VolumeRow.objects.in_bulk([each.volume_id for each in uses if each.volume_id])
    return tuple(
        _of_folder(each, folders.get(each.folder_id))
        if each.volume_id is None
        else _of_volume(each, volumes.get(each.volume_id))
        for each in uses
    )


def _of_folder(use: BlobUseRow, folder: FolderRow | None) -> str:
    if folder is None:
        return f"folder {use.folder_id}, which was removed"
    if folder.lease_id is not None:
        return f"the result of lease {folder.lease_id}"
    return f"folder {folder.folder_id} {folder.title}".strip()


def _of_volume(use: BlobUseRow, volume: VolumeRow | None) -> str:
    if volume is None:
        return f"volume {use.volume_id}"
    numbers = [each["number"] for each in volume.versions]
    here = [each for each in numbers if version_id_of(volume.volume_id, each) == use.folder_id]
    version = f"version {here[0]} of " if here else ""
    return f"{version}volume {volume.name} ({volume.volume_id})"
