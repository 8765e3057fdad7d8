"""`manage.py doctor` says what of folders, results and volumes is missing or damaged in storage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import timezone

from config.examination import _files
from config.operations.health import Finding
from config.wiring import build_storage
from marketplace import storage
from marketplace.domain.volumes.terms import version_id_of
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.models.volumes import VolumeRow
from marketplace.queries import blobs
from marketplace.storage.folder import FolderStorage
from marketplace.storage.port import BlobKey, Storage
from tests.contracts.storages.conftest import s3_of
from tests.marketplace.files.conftest import name_of
from tests.s3_teeth.server import S3Teeth

pytestmark = pytest.mark.django_db
OURS = UUID(int=7)


@pytest.fixture(scope="module")
def teeth() -> Iterator[S3Teeth]:
    server = S3Teeth()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    bucket = request.param == "s3"
    ours: Storage = (
        s3_of(request.getfixturevalue("teeth")) if bucket else FolderStorage(tmp_path / "blobs")
    )
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


def keep(kept: Storage, data: bytes, *, used: bool = True) -> BlobKey:
    """Have a blob in storage that a folder, or nothing, has."""
    key, now = BlobKey(OURS, name_of(data)), timezone.now()
    kept.write(key, data)
    row = BlobRow.objects.create(
        tenant_id=OURS, sha256=key.sha256, size_bytes=len(data), asked_at=now, stored_at=now
    )
    if used:
        BlobUseRow.objects.create(folder_id=uuid4(), blob_id=row.id)
    return key


def used_by(key: BlobKey, **use: Any) -> None:
    row = BlobRow.objects.get(sha256=key.sha256)
    BlobUseRow.objects.filter(blob_id=row.id).update(**use)


def damage(kept: Storage, key: BlobKey) -> None:
    """Have other bytes there, as a bad disk or a person with the bucket's keys leaves them."""
    if isinstance(kept, FolderStorage):
        (kept.root / key.path).write_bytes(b"other bytes")
    else:
        kept._client.put_object(Bucket=kept._bucket, Key=key.path, Body=b"other")  # type: ignore[attr-defined]  # past the port


def look(*, every_file: bool = False) -> Finding:
    return _files(every_file=every_file)


def a_folder(folder_id: UUID, **more: Any) -> None:
    FolderRow.objects.create(
        folder_id=folder_id,
        tenant_id=OURS,
        manifest="0" * 64,
        title="train",
        files=1,
        size_bytes=1,
        kept_at=timezone.now(),
        **more,
    )


def test_what_is_there_is_well_and_what_nothing_has_is_counted(kept: Storage) -> None:
    keep(kept, b"one")
    keep(kept, b"two")
    keep(kept, b"three", used=False)
    found = look()

    assert found.ok
    assert found.detail == (
        "2 of 2 parts looked at; in no folder: 1 (`run old-blobs` removes these in time)"
    )


def test_nothing_kept_is_well(kept: Storage) -> None:
    assert (
        look()
        == look(every_file=True)
        == Finding("files are as they were kept", True, "0 of 0 parts looked at")
    )


def test_what_is_missing_or_damaged_is_named_with_what_has_it(kept: Storage) -> None:
    folder_id, lease_id, volume_id = uuid4(), uuid4(), uuid4()
    keep(kept, b"well")
    gone, left, bad = keep(kept, b"gone"), keep(kept, b"left"), keep(kept, b"bad")
    a_folder(folder_id)
    used_by(gone, folder_id=folder_id)
    result_id = uuid4()
    a_folder(result_id, lease_id=lease_id)
    used_by(left, folder_id=result_id)
    a_volume(volume_id, version=7)
    used_by(bad, folder_id=version_id_of(volume_id, 7), volume_id=volume_id)
    kept.delete([gone, left])
    damage(kept, bad)
    found = look()

    assert not found.ok
    assert f"{gone.path} is missing: folder {folder_id} train" in found.detail
    assert f"{left.path} is missing: the result of lease {lease_id}" in found.detail
    assert f"{bad.path} is damaged: version 7 of volume data ({volume_id})" in found.detail
    assert "from a backup" in found.detail


def a_volume(volume_id: UUID, *, version: int) -> None:
    now = timezone.now()
    VolumeRow.objects.create(
        volume_id=volume_id,
        tenant_id=OURS,
        subscriber_id=OURS,
        account_id=OURS,
        cost_centre="",
        name="data",
        quota_bytes=1,
        nanos_per_gib_month=1,
        currency="USD",
        number=version,
        versions=[{"number": version}],
        created_at=now,
        expires_at=now + timedelta(days=9),
    )


def test_a_sample_is_bounded_and_the_whole_is_all(
    kept: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "NEWEST", 3)
    monkeypatch.setattr(blobs, "RANDOM", 2)
    monkeypatch.setattr(blobs, "BATCH", 4)
    keys = [keep(kept, f"part {number}".encode()) for number in range(11)]
    kept.delete([keys[-1]])
    newest = look()
    kept.delete(keys)
    every = look(every_file=True)

    assert not newest.ok
    assert keys[-1].path in newest.detail
    assert "of 11 parts looked at (the newest and random ones; all: --whole)" in newest.detail
    assert int(newest.detail.split()[0]) <= 5
    assert every.detail.startswith("11 of 11 parts looked at. ")
    assert "and 6 more" in every.detail
    assert "its disk mounted?" in every.detail


def test_a_sample_ends_with_its_time(kept: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SAMPLE_SECONDS", -1.0)
    keep(kept, b"one")

    assert look().detail.startswith("0 of 1 parts looked at (")
    assert look(every_file=True).detail == "1 of 1 parts looked at"


def test_what_is_let_go_of_meanwhile_is_no_fault(
    kept: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keep(kept, b"one")
    kept.delete([key])
    monkeypatch.setattr(blobs, "_uses_of", lambda row: ())

    assert look().ok


def test_a_bucket_that_does_not_answer_is_said_so(
    teeth: S3Teeth, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = s3_of(teeth)
    key = keep(ours, b"one")
    storage.install(lambda: ours)
    try:
        teeth.trouble = ["503 Slow Down"]
        away = look()
        assert look().ok, key
    finally:
        storage.install(lambda: build_storage(settings.ENV, settings.HOME))

    assert not away.ok
    assert away.detail.startswith("the storage does not answer (")
    assert "0 of 1 parts looked at" in away.detail


def test_a_folder_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    ours = FolderStorage(tmp_path / "blobs")
    key = keep(ours, b"one")
    file = ours.root / key.path
    file.unlink()
    file.mkdir()
    storage.install(lambda: ours)
    try:
        away = look()
    finally:
        storage.install(lambda: build_storage(settings.ENV, settings.HOME))

    assert not away.ok
    assert "Is a directory" in away.detail


def test_quick_and_whole_are_not_asked_for_together() -> None:
    with pytest.raises(CommandError, match="not allowed with"):
        call_command("doctor", "--quick", "--whole")
