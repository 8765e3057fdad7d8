"""An organisation keeps volumes by the API: made, filled, read, grown, extended and removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from marketplace import folders
from marketplace.models.folders import BlobRow, BlobUseRow
from marketplace.models.volumes import VolumeRow
from marketplace.storage.folder import FolderStorage
from tests.access.conftest import Caller, admit
from tests.marketplace.files.conftest import Upload, manifest_of, name_of
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import body, read, with_unit
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit
from tests.marketplace.volumes.conftest import Keeping

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


@pytest.fixture
def mine(ada: Caller, unit: str, kept: FolderStorage) -> Keeping:
    made = Keeping(ada, kept, unit)
    assert made.create().status_code == 201
    return made


def bid(who: Keeping, *volumes: dict[str, Any], **more: Any) -> Any:
    work = {"kind": "other", "command": ["true"], "volumes": volumes}
    done = who.caller.post("/api/v1/bids", body(who.unit, workload=work, **more))
    read()
    return done


def test_a_volume_is_made_filled_and_read(mine: Keeping) -> None:
    first = mine.bring(0, train=b"one", model=b"weights")
    again = mine.bring(0, train=b"one", model=b"weights")
    behind = mine.bring(0, train=b"two")
    second = mine.bring(1, train=b"two", model=b"weights")
    shown = mine.shown()

    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert again.json()["version"] == 1
    assert (behind.status_code, behind.json()["code"]) == (409, "volume-conflict")
    assert second.json()["version"] == 2
    assert (shown["version"], shown["files"], shown["size_bytes"]) == (2, 2, 10)
    assert (shown["price"], shown["currency"], shown["size_gib"]) == ("0.05", "USD", 1)
    asked = {"blobs": [shown["manifest"], name_of(b"one"), name_of(b"weights")]}
    links = mine.caller.post("/api/v1/volumes/data/links", asked)
    assert set(links.json()["links"]) == set(asked["blobs"]), "also of the version before"
    versions = mine.caller.get("/api/v1/volumes/data/versions").json()["data"]
    assert [each["version"] for each in versions] == [2, 1]


def test_blobs_of_versions_that_are_kept_no_more_go_and_others_stay(
    mine: Keeping, kept: FolderStorage
) -> None:
    for number in range(5):
        assert mine.bring(number, always=b"same", now=f"v{number}".encode()).status_code == 201
    BlobRow.objects.update(asked_at=timezone.now() - timedelta(hours=25))
    folders.forget_unused(kept, now=timezone.now())
    left = set(BlobRow.objects.values_list("sha256", flat=True))

    assert name_of(b"same") in left
    assert not {name_of(b"v0"), name_of(b"v1")} & left
    assert {name_of(b"v2"), name_of(b"v3"), name_of(b"v4")} <= left
    assert mine.caller.delete("/api/v1/volumes/data").status_code == 200
    folders.forget_unused(kept, now=timezone.now())
    assert not BlobUseRow.objects.exists()
    assert not BlobRow.objects.exists()


def test_what_volumes_keep_takes_no_room_of_folders(mine: Keeping, kept: FolderStorage) -> None:
    Upload(mine.caller, kept).folder(shared=b"shared")
    mine.bring(0, shared=b"shared", own=b"own of the volume")
    of_folders = folders.used_bytes(mine.caller.tenant_id)
    of_all = folders.used_bytes(mine.caller.tenant_id, of_volumes=True)

    assert of_folders == len(b"shared") + len(manifest_of(shared=b"shared"))
    assert of_all > of_folders


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"name": "Data"}, "volume-name-unfit"),
        ({"name": "../data"}, "volume-name-unfit"),
        ({"size_gib": 101}, "volumes-full"),
        ({"name": "data"}, "volume-exists"),
        ({"expires_at": "2199-01-01T00:00:00Z"}, "volume-time-out-of-bounds"),
    ],
)
def test_what_no_volume_can_be_is_refused(mine: Keeping, said: Any, code: str) -> None:
    refused = mine.create(**{"name": "other", **said})

    assert refused.json()["code"] == code
    assert VolumeRow.objects.count() == 1


def test_a_volume_grows_and_is_kept_for_longer(mine: Keeping) -> None:
    until = (timezone.now() + timedelta(days=90)).replace(microsecond=0)
    said = {"size_gib": 3, "expires_at": until.isoformat()}
    done = mine.caller.ask("PATCH", "/api/v1/volumes/data", said)
    read()
    shorter = {"expires_at": (until - timedelta(days=1)).isoformat()}
    sooner = mine.caller.ask("PATCH", "/api/v1/volumes/data", shorter)
    none = mine.caller.ask("PATCH", "/api/v1/volumes/data", {})

    assert done.status_code == 200, done.content
    assert (mine.shown()["size_gib"], VolumeRow.objects.get().expires_at) == (3, until)
    assert (sooner.status_code, sooner.json()["code"]) == (422, "volume-ends-sooner")
    assert none.status_code == 422


def test_one_bid_writes_to_a_volume_and_others_read_it(mine: Keeping, market: Market) -> None:
    writes = {"name": "data"}
    first = bid(mine, writes)
    second = bid(mine, writes)
    reads = bid(mine, {"name": "data", "path": "in", "writable": False})
    brought = mine.bring(0, train=b"one")
    removed = mine.caller.delete("/api/v1/volumes/data")

    assert first.status_code == 201, first.content
    shown = mine.caller.get(f"/api/v1/bids/{first.json()['id']}").json()["workload"]["volumes"]
    assert shown == [{"name": "data", "path": "volumes/data", "writable": True}]
    assert mine.shown()["bids"] == [first.json()["id"]]
    assert (second.status_code, second.json()["code"]) == (409, "volume-in-use")
    assert first.json()["id"] in str(second.json())
    assert reads.status_code == 201
    assert (brought.status_code, brought.json()["code"]) == (409, "volume-in-use")
    assert (removed.status_code, removed.json()["code"]) == (409, "volume-in-use")
    for each in (first, reads):
        assert mine.caller.delete(f"/api/v1/bids/{each.json()['id']}").status_code == 200
    read()
    assert mine.bring(0, train=b"one").status_code == 201, "the bid that wrote was withdrawn"
    assert bid(mine, writes).status_code == 201


@pytest.mark.parametrize(
    ("mounts", "more", "code"),
    [
        ([{"name": "other"}], {}, "volume-unknown"),
        ([{"name": "data", "path": "../out"}], {}, "path-unsafe"),
        ([{"name": "data"}, {"name": "data", "path": "b"}], {}, "volumes-unclear"),
        ([{"name": "data"}], {"placement": "any-hosts"}, "volumes-on-one-host"),
    ],
)
def test_a_bid_that_names_what_is_not_to_be_had_is_refused(
    mine: Keeping, market: Market, mounts: Any, more: Any, code: str
) -> None:
    assert bid(mine, *mounts, **more).json()["code"] == code


def test_others_see_no_volume(mine: Keeping, kept: FolderStorage) -> None:
    mine.bring(0, train=b"one")
    bob = Keeping(admit("bob-works", "consumer"), kept, "")
    bob.unit = with_unit(bob.caller)
    read()
    shown = bob.caller.get("/api/v1/volumes/data")
    links = bob.caller.post("/api/v1/volumes/data/links", {"blobs": [name_of(b"one")]})
    mounted = bid(bob, {"name": "data"})

    assert (shown.status_code, links.status_code, mounted.status_code) == (404, 404, 404)
    assert bob.caller.get("/api/v1/volumes").json()["data"] == []
    assert bob.create().status_code == 201, "a name is each organisation's own"
    assert mine.shown()["version"] == 1
