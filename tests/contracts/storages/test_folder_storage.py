"""The folder: whole or absent, whatever happens on the way."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from config.web.transfers import Transfers
from marketplace.storage import folder
from marketplace.storage.folder import FolderStorage, Receiving
from marketplace.storage.port import BlobKey
from tests.contracts.storages.conftest import ask, key_of, nobody, put

DATA = os.urandom(3_000_000)


@pytest.fixture
def storage(tmp_path: Path) -> FolderStorage:
    return FolderStorage(tmp_path / "blobs")


def files(storage: FolderStorage) -> list[str]:
    return [str(file) for file in storage.root.rglob("*") if file.is_file()]


@pytest.mark.parametrize("cut", [0, 1, 2**20, len(DATA) - 1])
def test_of_an_upload_that_is_cut_nothing_is_left(storage: FolderStorage, cut: int) -> None:
    key = key_of(DATA)
    link = storage.put_link(key, len(DATA))
    came = iter(
        [
            {"type": "http.request", "body": DATA[:cut], "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(came)

    async def send(message: Any) -> None:
        sent.append(message)

    length = (b"content-length", str(len(DATA)).encode())
    scope = {"type": "http", "path": link.url, "method": "PUT", "headers": [length]}
    asyncio.run(Transfers(nobody, storage=lambda: storage)(scope, receive, send))

    assert (sent, files(storage), storage.sizes([key])) == ([], [], {})


def test_each_new_name_on_the_way_to_a_blob_outlives_a_power_failure(
    storage: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first blob of an organisation makes its folder, and one in that."""
    settled: list[Path] = []
    monkeypatch.setattr(folder, "_settle", settled.append)
    first = key_of(b"one")
    second = BlobKey(first.tenant_id, key_of(b"another").sha256)

    for key, data in ((first, b"one"), (second, b"another")):
        receiving = storage.receive(key, len(data))
        receiving.write(data)
        receiving.finish()
        receiving.end()

    of_all, of_ours = storage.root, storage.root / str(first.tenant_id)
    assert settled[:3] == [of_ours / first.sha256[:2], of_ours, of_all]
    assert settled[3:] == [of_ours / second.sha256[:2], of_ours]


def test_a_link_works_for_its_time_and_no_longer(
    storage: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_of(DATA)
    then = time.time() - 901
    with monkeypatch.context() as earlier:
        earlier.setattr(time, "time", lambda: then)  # which the signature takes its moment from
        link = storage.put_link(key, len(DATA))

    refused = ask(storage, "PUT", link, content=DATA)

    assert (refused.status_code, refused.json()["code"]) == (403, "link-not-good")
    assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_so_and_nothing_is_left(
    storage: FolderStorage, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    key = key_of(DATA)
    monkeypatch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(fault, "full")))

    refused = ask(storage, "PUT", storage.put_link(key, len(DATA)), content=DATA)

    assert (refused.status_code, refused.json()["code"]) == (507, "storage-full")
    assert files(storage) == []


def test_a_folder_that_cannot_be_written_is_away(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file is in its place")
    storage = FolderStorage(tmp_path / "blobs")

    refused = ask(storage, "PUT", storage.put_link(key_of(DATA), len(DATA)), content=DATA)

    assert (refused.status_code, refused.json()["code"]) == (503, "storage-away")


def test_what_a_killed_server_left_is_swept_and_was_never_a_blob(storage: FolderStorage) -> None:
    key = key_of(DATA)
    receiving: Receiving = storage.receive(key, len(DATA))
    receiving.write(DATA)
    receiving._out.close()  # as a kill does it: all is written, and it has no name

    assert storage.sizes([key]) == {}
    assert storage.sweep(older_than_seconds=3_600) == 0
    assert storage.sweep(older_than_seconds=-1) == 1
    assert files(storage) == []
    assert put(storage, storage.put_link(key, len(DATA)), DATA) == 204


@pytest.mark.parametrize("token", ["", "x", "..%2F..%2Fetc%2Fpasswd", "a:b:c", "ü"])
def test_what_is_no_link_leads_nowhere(storage: FolderStorage, token: str) -> None:
    link = type(storage.get_link(key_of(DATA)))(f"/blobs/{token}")

    assert ask(storage, "GET", link).status_code == 403
    assert ask(storage, "PUT", link, content=b"x").status_code == 403
    assert ask(storage, "POST", link, content=b"x").status_code == 405


def test_a_length_that_is_not_the_blobs_is_refused_before_anything_is_read(
    storage: FolderStorage,
) -> None:
    link = storage.put_link(key_of(DATA), len(DATA))

    refused = ask(storage, "PUT", link, content=DATA[:-1])

    assert (refused.status_code, refused.json()["code"]) == (422, "blob-length-wrong")
    assert not storage.root.exists()
