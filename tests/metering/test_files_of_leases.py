"""A host brings and fetches the files of its own leases, through the real API, and of no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.utils import timezone

from config.wiring import build_storage
from marketplace import storage
from marketplace.models.folders import FolderRow
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.storage.folder import FolderStorage
from tests.access.conftest import Caller
from tests.marketplace.files.conftest import Upload, manifest_of, name_of
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit
from tests.metering.hosts_of_leases import Host, Linked, host

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.market_routes")]

TRAIN, MODEL = b"print('hello')\n", b"weights"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[FolderStorage]:
    ours = FolderStorage(tmp_path / "blobs")
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@pytest.fixture
def lease(ada: Caller, unit: str, market: Market, kept: FolderStorage) -> LeaseRow:
    """A lease whose work brings a folder and leaves `out/`, running on its host."""
    folder = Upload(ada, kept).folder(train=TRAIN)
    work = {"kind": "other", "command": ["true"], "inputs": folder, "outputs": ["out/"]}
    assert ada.post("/api/v1/bids", body(unit, workload=work)).status_code == 201
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()
    LeaseShareRow.objects.update(phase="run")
    return LeaseRow.objects.get()


@pytest.fixture
def ours(lease: LeaseRow) -> Host:
    share = LeaseShareRow.objects.get()
    return host(share.host_id, share.owner_id)


def test_a_host_is_shown_the_inputs_of_its_lease_and_of_no_other(
    lease: LeaseRow, ours: Host, ada: Caller
) -> None:
    shown = ours.ask(lease.lease_id, "inputs", {"blobs": []})
    asked = ours.ask(lease.lease_id, "inputs", {"blobs": [name_of(TRAIN)]})
    other = host(uuid4(), uuid4())

    assert shown.status_code == 200, shown.content
    assert shown.json()["manifest"] == name_of(manifest_of(train=TRAIN))
    assert [each["sha256"] for each in shown.json()["links"]] == [shown.json()["manifest"]]
    assert [each["sha256"] for each in asked.json()["links"]] == [name_of(TRAIN)]
    assert other.ask(lease.lease_id, "inputs", {"blobs": []}).status_code == 404
    assert ours.ask(uuid4(), "inputs", {"blobs": []}).status_code == 404
    assert ours.ask(lease.lease_id, "inputs", {"blobs": [name_of(MODEL)]}).status_code == 404
    mine = ada.post(f"/api/v1/agent/leases/{lease.lease_id}/inputs", {"blobs": []})
    assert mine.status_code == 403
    LeaseShareRow.objects.update(phase="over")
    assert ours.ask(lease.lease_id, "inputs", {"blobs": []}).status_code == 404


def bring(ours: Host, lease: LeaseRow, kept: FolderStorage, *blobs: bytes) -> set[str]:
    """Send what is missing; return its names."""
    said = [{"sha256": name_of(each), "size": len(each)} for each in blobs]
    answer = ours.ask(lease.lease_id, "outputs/missing", {"blobs": said})
    assert answer.status_code == 200, answer.content
    links = {each["sha256"]: each for each in answer.json()["links"]}
    upload = Upload(ours, kept)
    wanted = [each for each in blobs if name_of(each) in links]
    upload.send(Linked(links), *wanted)
    return set(links)


def test_what_work_left_is_a_folder_of_its_consumer(
    lease: LeaseRow, ours: Host, ada: Caller, kept: FolderStorage
) -> None:
    manifest = manifest_of(model=MODEL)
    early = ours.ask(lease.lease_id, "outputs", {"manifest": name_of(manifest), "exit_code": 0})
    assert bring(ours, lease, kept, MODEL, manifest) == {name_of(MODEL), name_of(manifest)}
    said = {"manifest": name_of(manifest), "exit_code": 3}
    done = ours.ask(lease.lease_id, "outputs", said)
    again = ours.ask(lease.lease_id, "outputs", said)
    read()
    shown = ada.get(f"/api/v1/leases/{lease.lease_id}").json()

    assert early.status_code == 409
    assert done.status_code == 200, done.content
    assert again.json() == done.json()
    assert bring(ours, lease, kept, MODEL, manifest) == set(), "nothing is sent twice"
    [folder] = shown["output_folders"]
    row = FolderRow.objects.get(folder_id=folder["folder_id"])
    assert (row.tenant_id, row.lease_id) == (ada.tenant_id, lease.lease_id)
    assert (folder["exit_code"], folder["attempt"], folder["size_bytes"]) == (3, 1, len(MODEL))
    assert shown["outputs_failed"] == []
    listed = ada.get(f"/api/v1/folders?lease_id={lease.lease_id}").json()["data"]
    assert [each["id"] for each in listed] == [folder["folder_id"]]


def test_a_host_brings_nothing_for_leases_of_others_or_that_nobody_asked_for(
    lease: LeaseRow, ours: Host, kept: FolderStorage
) -> None:
    blobs = {"blobs": [{"sha256": name_of(MODEL), "size": len(MODEL)}]}
    other = host(uuid4(), uuid4())

    assert other.ask(lease.lease_id, "outputs/missing", blobs).status_code == 404
    assert (
        other.ask(lease.lease_id, "outputs/failed", {"reason": "x", "final": True}).status_code
        == 404
    )
    unfit: tuple[dict[str, Any], ...] = ({"blobs": []}, {"blobs": [{"sha256": "x", "size": 1}]}, {})
    for wrong in unfit:
        assert ours.ask(lease.lease_id, "outputs/missing", wrong).status_code == 422
    LeaseRow.objects.update(closed_at=timezone.now() - timedelta(hours=25))
    late = ours.ask(lease.lease_id, "outputs/missing", blobs)
    LeaseRow.objects.update(closed_at=None, outputs=[])
    unasked = ours.ask(lease.lease_id, "outputs/missing", blobs)

    assert (late.status_code, late.json()["code"]) == (409, "outputs-too-late")
    assert (unasked.status_code, unasked.json()["code"]) == (409, "outputs-not-asked")


def test_what_could_not_be_kept_is_said_on_the_lease_until_it_is(
    lease: LeaseRow, ours: Host, ada: Caller, kept: FolderStorage, unit: str
) -> None:
    for _ in range(2):
        told = ours.ask(lease.lease_id, "outputs/failed", {"reason": "no room", "final": False})
        assert told.status_code == 200, told.content
    read()
    shown = ada.get(f"/api/v1/leases/{lease.lease_id}").json()
    [failed] = shown["outputs_failed"]
    manifest = manifest_of(model=MODEL)
    bring(ours, lease, kept, MODEL, manifest)
    ours.ask(lease.lease_id, "outputs", {"manifest": name_of(manifest), "exit_code": None})
    read()
    after = ada.get(f"/api/v1/leases/{lease.lease_id}").json()

    assert (failed["reason"], failed["final"]) == ("no room", False)
    assert after["outputs_failed"] == [], "it was kept after all"
    assert after["output_folders"][0]["exit_code"] is None
    assert json.dumps(after).count("no room") == 0
