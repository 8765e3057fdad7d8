"""Bringing a folder over HTTP: only what is missing, nothing half visible, nothing of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from ledger.eventstore import default_store
from ledger.eventstore.port import StoreUnavailable
from ledger.eventstore.postgres import PostgresStore
from marketplace import folders
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.storage.folder import FolderStorage
from marketplace.storage.port import BlobKey, StorageAway
from tests.access.conftest import Caller, admit
from tests.marketplace.files.conftest import Upload, manifest_of, name_of, read

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]

TRAIN, DATA = b"print('hello')\n", b"1,2,3\n" * 1_000
MANIFEST = manifest_of(train=TRAIN, data=DATA)
DAY = timedelta(hours=24, minutes=1)


@pytest.fixture
def hers(ada: Caller, kept: FolderStorage) -> Upload:
    return Upload(ada, kept)


@pytest.fixture
def his(bob: Caller, kept: FolderStorage) -> Upload:
    return Upload(bob, kept)


def links(answer: Any) -> set[str]:
    assert answer.status_code == 200, answer.content
    return set(answer.json()["links"])


def test_a_folder_is_brought_listed_and_read(hers: Upload) -> None:
    folder = hers.folder(train=TRAIN, data=DATA)

    [listed] = hers.caller.get("/api/v1/folders").json()["data"]
    shown = hers.caller.get(f"/api/v1/folders/{folder}").json()
    asked = {"blobs": [name_of(MANIFEST), name_of(DATA)]}
    given = hers.caller.post(f"/api/v1/folders/{folder}/links", asked)

    assert listed == shown
    assert (shown["files"], shown["size_bytes"]) == (2, len(TRAIN) + len(DATA))
    assert shown["manifest"] == name_of(MANIFEST)
    assert links(given) == {name_of(MANIFEST), name_of(DATA)}


def test_a_second_time_nothing_is_missing(hers: Upload) -> None:
    first = hers.folder(train=TRAIN, data=DATA)

    assert links(hers.missing(TRAIN, DATA, MANIFEST)) == set()
    assert hers.folder(train=TRAIN, data=DATA) == first
    assert FolderRow.objects.count() == 1


def test_an_upload_that_was_cut_goes_on_where_it_was(hers: Upload) -> None:
    answer = hers.missing(TRAIN, DATA, MANIFEST)
    hers.send(answer, DATA)

    assert links(hers.missing(TRAIN, DATA, MANIFEST)) == {name_of(TRAIN), name_of(MANIFEST)}


def test_a_folder_that_lacks_a_blob_is_refused_and_not_to_be_seen(hers: Upload) -> None:
    hers.missing(TRAIN, DATA, MANIFEST)
    hers.bring(TRAIN, MANIFEST)

    refused = hers.keep(MANIFEST)
    read()

    assert (refused.status_code, refused.json()["code"]) == (409, "blobs-missing")
    assert refused.json()["details"] == {"missing": 1, "blobs": [name_of(DATA)]}
    assert hers.caller.get("/api/v1/folders").json()["data"] == []
    assert not BlobUseRow.objects.exists()


def test_a_manifest_that_is_not_there_or_was_never_asked_for_is_missing(
    hers: Upload, kept: FolderStorage
) -> None:
    absent = hers.keep(MANIFEST)
    hers.missing(TRAIN)
    place = kept.root / BlobKey(hers.caller.tenant_id, name_of(MANIFEST)).path
    place.parent.mkdir(parents=True)
    place.write_bytes(MANIFEST)

    smuggled = hers.keep(MANIFEST)

    assert [each.status_code for each in (absent, smuggled)] == [409, 409]
    assert name_of(MANIFEST) in smuggled.json()["details"]["blobs"]


def test_what_others_have_is_missing_here_and_cannot_be_read(hers: Upload, his: Upload) -> None:
    folder = hers.folder(train=TRAIN, data=DATA)

    assert links(his.missing(TRAIN, DATA, MANIFEST)) == {
        name_of(each) for each in (TRAIN, DATA, MANIFEST)
    }
    assert his.keep(MANIFEST).status_code == 409
    for refused in (
        his.caller.get(f"/api/v1/folders/{folder}"),
        his.caller.delete(f"/api/v1/folders/{folder}"),
        his.caller.post(f"/api/v1/folders/{folder}/links", {"blobs": [name_of(DATA)]}),
    ):
        assert (refused.status_code, refused.json()["code"]) == (404, "folder-unknown")


def test_a_link_to_a_blob_that_is_not_of_the_folder_is_refused(hers: Upload) -> None:
    folder = hers.folder(train=TRAIN)
    hers.folder(data=DATA)

    refused = hers.caller.post(f"/api/v1/folders/{folder}/links", {"blobs": [name_of(DATA)]})

    assert refused.status_code == 404


def test_who_runs_the_platform_sees_no_folder_of_others(
    hers: Upload, django_user_model: Any
) -> None:
    from ledger.models import MemberRow

    folder = hers.folder(train=TRAIN)
    operator = admit("offpeak", "operator")
    MemberRow.objects.filter(user_id=operator.user_id).update(is_platform=True)

    assert operator.get("/api/v1/folders").json()["data"] == []
    assert operator.get(f"/api/v1/folders/{folder}").status_code == 404


@pytest.mark.parametrize("role", ["finance", "auditor", "owner"])
def test_who_does_not_work_with_files_may_not_read_them(role: str, kept: FolderStorage) -> None:
    assert admit("ada-labs", role).get("/api/v1/folders").status_code == 403


def test_a_token_for_bids_brings_files_and_one_that_reads_bids_does_not() -> None:
    bidder = admit("ada-labs", "consumer", scopes=("bids:write",))
    looker = admit("bob-works", "consumer", scopes=("bids:read",))

    assert bidder.get("/api/v1/folders").status_code == 200
    assert looker.get("/api/v1/folders").status_code == 403


def test_room_is_kept_for_what_was_asked_for_and_ends(
    hers: Upload, his: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marketplace.api.folders.GIB", 100)
    monkeypatch.setattr(settings, "ENV", _with(files_gib_max=1))

    assert hers.missing(b"x" * 60).json()["bytes_used"] == 60
    refused = hers.missing(b"y" * 41)

    assert (refused.status_code, refused.json()["code"]) == (413, "quota-used-up")
    assert refused.json()["details"] == {"bytes_used": 60, "bytes_more": 41, "bytes_max": 100}
    assert hers.missing(b"x" * 60, b"y" * 40).status_code == 200, "what has room needs none again"
    assert his.missing(b"y" * 41).status_code == 200
    folders.forget_unused(hers.kept, now=timezone.now() + DAY)
    assert hers.missing(b"z" * 100).status_code == 200


def _with(**changed: Any) -> Any:
    from dataclasses import replace

    return replace(settings.ENV, **changed)


@pytest.mark.parametrize(
    ("blobs", "status"),
    [
        ({"x": 1}, 422),
        ({"a" * 64: 0}, 422),
        ({"a" * 64: 2**23 + 1}, 422),
        ({"a" * 64: "1"}, 422),
        ({"A" * 64: 1}, 422),
        ({f"{number:064x}": 1 for number in range(1_001)}, 422),
        ([], 422),
        ({}, 200),
    ],
    ids=["no hash", "empty", "too long", "text", "capitals", "too many", "a list", "none"],
)
def test_what_cannot_be_asked_for_is_refused(hers: Upload, blobs: object, status: int) -> None:
    answer = hers.caller.post("/api/v1/folders/missing", {"blobs": blobs})

    assert answer.status_code == status, answer.content


def test_a_blob_with_two_sizes_is_refused(hers: Upload) -> None:
    hers.missing(TRAIN)

    asked = {"blobs": {name_of(TRAIN): len(TRAIN) + 1}}
    refused = hers.caller.post("/api/v1/folders/missing", asked)

    assert (refused.status_code, refused.json()["code"]) == (422, "blob-size-wrong")


def test_a_manifest_that_leads_out_is_refused_when_it_is_named(hers: Upload) -> None:
    bad = manifest_of(x=TRAIN).replace(b'"x"', b'"../x"')
    hers.bring(bad, TRAIN)

    refused = hers.keep(bad)

    assert (refused.status_code, refused.json()["code"]) == (422, "path-unsafe")


def test_blobs_without_a_folder_go_after_a_day_and_those_with_one_stay(hers: Upload) -> None:
    hers.bring(b"never named")
    hers.folder(train=TRAIN)
    soon, later = timezone.now() + timedelta(hours=23), timezone.now() + DAY

    assert folders.forget_unused(hers.kept, now=soon) == 0
    assert folders.forget_unused(hers.kept, now=later) == 1
    assert links(hers.missing(b"never named", TRAIN)) == {name_of(b"never named")}


def test_a_removed_folder_gives_back_what_no_other_has(hers: Upload) -> None:
    folder = hers.folder(train=TRAIN, data=DATA)
    other = hers.folder(train=TRAIN)

    assert hers.caller.delete(f"/api/v1/folders/{folder}").status_code == 200
    read()
    assert folders.let_go_removed(PostgresStore(), now=timezone.now()) == 0, "not at once"
    assert folders.let_go_removed(PostgresStore(), now=timezone.now() + DAY) == 1
    folders.forget_unused(hers.kept, now=timezone.now() + DAY)

    assert [each["id"] for each in hers.caller.get("/api/v1/folders").json()["data"]] == [other]
    assert set(BlobRow.objects.values_list("sha256", flat=True)) == {
        name_of(TRAIN),
        name_of(manifest_of(train=TRAIN)),
    }
    assert hers.folder(train=TRAIN, data=DATA) == folder, "it may be brought again"


def test_a_storage_that_is_away_is_said_so_and_nothing_is_lost(
    hers: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    hers.bring(TRAIN, DATA, MANIFEST)

    def away(*_: object) -> None:
        raise StorageAway()

    with monkeypatch.context() as trouble:
        trouble.setattr(FolderStorage, "read", away)
        refused = hers.keep(MANIFEST)

    assert (refused.status_code, refused.json()["code"]) == (503, "storage-away")
    assert hers.keep(MANIFEST).status_code == 201


def test_of_a_folder_whose_event_could_not_be_recorded_nothing_is_left(
    hers: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    hers.bring(TRAIN, DATA, MANIFEST)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("killed between blob and manifest")

    with monkeypatch.context() as trouble:
        trouble.setattr(type(default_store()), "append", away)
        assert hers.keep(MANIFEST).status_code == 503
    read()

    assert not BlobUseRow.objects.exists()
    assert hers.caller.get("/api/v1/folders").json()["data"] == []
    assert hers.keep(MANIFEST).status_code == 201


def test_a_title_is_kept_and_one_too_long_refused(hers: Upload) -> None:
    hers.bring(TRAIN, DATA, MANIFEST)

    assert hers.keep(MANIFEST, title="x" * 121).status_code == 422
    done = hers.keep(MANIFEST, title="the trainer")
    read()

    shown = hers.caller.get(f"/api/v1/folders/{done.json()['id']}").json()
    assert (shown["title"], shown["lease_id"]) == ("the trainer", None)


def test_a_folder_that_is_kept_anew_after_its_removal_stays_whole(hers: Upload) -> None:
    folder = hers.folder(train=TRAIN)
    hers.caller.delete(f"/api/v1/folders/{folder}")
    hers.keep(manifest_of(train=TRAIN))  # and its row is not there yet

    assert folders.let_go_removed(PostgresStore(), now=timezone.now() + DAY) == 0
    folders.forget_unused(hers.kept, now=timezone.now() + DAY)

    assert BlobRow.objects.count() == 2
