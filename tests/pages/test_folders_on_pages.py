"""What a folder holds is listed and saved, checked byte by byte, by whose it is and nobody else."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from config.web.downloads import DOWNLOADS_OF_ONE_MAX, Downloads
from config.wiring import build_storage
from ledger.models import MemberRow, Person
from marketplace import storage
from marketplace.models.folders import FolderRow
from marketplace.models.leases import LeaseRow
from marketplace.storage import download_links
from marketplace.storage.download_links import Wanted
from marketplace.storage.folder import FolderStorage
from marketplace.storage.port import BlobKey
from tests.access.conftest import Caller, admit
from tests.marketplace.files.conftest import Upload, manifest_of, name_of
from tests.pages.bid_form import form
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db

HOSTILE = b"<script>fetch('/settings')</script>"
WEIGHTS = bytes(range(256)) * 4_000


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[FolderStorage]:
    ours = FolderStorage(tmp_path / "blobs")
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


def browser_of(caller: Caller) -> Client:
    client = Client()
    client.force_login(Person.objects.get(id=caller.user_id))
    return client


class Saved:
    """What a browser is answered where a page sends it on to."""

    def __init__(self, location: str, kept: FolderStorage, *, method: str = "GET") -> None:
        self.status, self.body, self.aborted = 0, b"", False
        self.headers: dict[str, str] = {}
        asyncio.run(self._ask(location, kept, method))

    async def _ask(self, location: str, kept: FolderStorage, method: str) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            self.body += message.get("body", b"")

        def abort() -> None:
            self.aborted = True

        async def nobody(*_: Any) -> None:
            raise AssertionError("it is for downloads")

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(location),
            "headers": [],
            "state": {"offpeak.abort": abort},
        }
        await Downloads(nobody, storage=lambda: kept)(scope, receive, send)


def test_a_folder_is_listed_and_each_file_is_saved_and_never_shown(
    ada: Caller, kept: FolderStorage
) -> None:
    files = {"out/report.html": HOSTILE, "naïve “x”.bin": WEIGHTS, "empty.txt": b"e"}
    folder_id = Upload(ada, kept).folder(**files)
    browser = browser_of(ada)

    page = html(browser.get(f"/folders/{folder_id}").content)
    sent_on = browser.get(f"/folders/{folder_id}/file", {"path": "out/report.html"})
    saved = Saved(sent_on["Location"], kept)
    named = browser.get(f"/folders/{folder_id}/file", {"path": "naïve “x”.bin"})
    weights = Saved(named["Location"], kept)

    assert "out/report.html" in page and "1000 KiB" in page
    assert f"/folders/{folder_id}" in browser.get("/folders").content.decode()
    assert (saved.status, saved.body) == (200, HOSTILE)
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith('attachment; filename="report.html"')
    assert saved.headers["content-security-policy"].startswith("sandbox")
    assert saved.headers["x-content-type-options"] == "nosniff"
    assert saved.headers["content-length"] == str(len(HOSTILE))
    assert weights.body == WEIGHTS
    assert (
        "filename*=UTF-8''na%C3%AFve%20%E2%80%9Cx%E2%80%9D.bin"
        in (weights.headers["content-disposition"])
    )


def test_all_of_a_folder_comes_as_one_archive(ada: Caller, kept: FolderStorage) -> None:
    files = {"out/report.html": HOSTILE, "model.bin": WEIGHTS}
    folder_id = Upload(ada, kept).folder(**files)

    saved = Saved(browser_of(ada).get(f"/folders/{folder_id}/all")["Location"], kept)

    archive = zipfile.ZipFile(io.BytesIO(saved.body))
    assert archive.testzip() is None
    assert {name: archive.read(name) for name in archive.namelist()} == files
    assert saved.headers["content-type"] == "application/zip"
    assert ".zip" in saved.headers["content-disposition"]


def test_a_folder_is_for_its_organisation_alone(ada: Caller, kept: FolderStorage) -> None:
    folder_id = Upload(ada, kept).folder(a=b"a")
    others = browser_of(admit("bob-works", "consumer"))
    ours = browser_of(ada)

    assert ours.get(f"/folders/{folder_id}/file?path=../a").status_code == 404
    assert ours.get(f"/folders/{uuid4()}").status_code == 404
    for what in ("", "/file?path=a", "/all"):
        assert others.get(f"/folders/{folder_id}{what}").status_code == 404
    assert others.post(f"/folders/{folder_id}/remove").status_code == 404
    MemberRow.objects.filter(user_id=ada.user_id).update(roles=["finance"])
    for what in ("", "/file?path=a", "/all"):
        assert ours.get(f"/folders/{folder_id}{what}").status_code == 403


def test_bytes_that_changed_in_storage_are_never_saved_as_a_file(
    ada: Caller, kept: FolderStorage
) -> None:
    folder_id = Upload(ada, kept).folder(one=b"1" * 100, two=WEIGHTS)
    browser = browser_of(ada)
    one = browser.get(f"/folders/{folder_id}/file?path=two")["Location"]
    whole = browser.get(f"/folders/{folder_id}/all")["Location"]
    blob = kept.root / BlobKey(ada.tenant_id, name_of(WEIGHTS)).path
    blob.chmod(0o600)
    blob.write_bytes(WEIGHTS[:-1] + b"!")

    told, cut = Saved(one, kept), Saved(whole, kept)

    assert told.status == 500 and b"not in storage as it was kept" in told.body
    assert cut.aborted, "what was begun is broken off, so that no browser takes it for whole"
    kept.delete([BlobKey(ada.tenant_id, name_of(manifest_of(one=b"1" * 100, two=WEIGHTS)))])
    assert "not in storage as it was kept" in browser.get(f"/folders/{folder_id}").content.decode()


def test_a_link_is_good_for_a_minute_for_what_it_names_and_for_reading(
    ada: Caller, kept: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_id = Upload(ada, kept).folder(a=b"a")
    link = browser_of(ada).get(f"/folders/{folder_id}/file?path=a")["Location"]

    assert Saved(link, kept).status == 200
    assert Saved(link, kept, method="PUT").status == 405
    assert Saved(link[:-2], kept).status == 403
    monkeypatch.setattr(download_links, "LINK_SECONDS", -1)
    assert Saved(link, kept).status == 403


def test_one_organisation_does_not_take_all_room_for_downloads(kept: FolderStorage) -> None:
    ours = Wanted(str(uuid4()), "0" * 64, "", "a.zip", timezone.now().isoformat())
    downloads = Downloads(lambda *_: None, storage=lambda: kept)  # type: ignore[arg-type]  # is not asked
    downloads._running[ours.tenant_id] = DOWNLOADS_OF_ONE_MAX
    answers = list[int]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if "status" in message:
            answers.append(message["status"])

    scope = {"type": "http", "method": "GET", "path": ours.link(), "headers": []}
    asyncio.run(downloads(scope, receive, send))

    assert answers == [429]


def test_a_leases_page_names_its_inputs_what_it_left_and_what_could_not_be_kept(
    world: World, kept: FolderStorage
) -> None:
    world.list_gpus(0, 1)
    consumer, owner = world.member(CONSUMER, "consumer"), world.member(OWNER, "owner")
    consumer.post("/bids/new", form())
    world.settle()
    row = LeaseRow.objects.get()
    body = manifest_of(**{"out/model.bin": WEIGHTS})
    for each in (body, WEIGHTS):
        kept.write(BlobKey(world.tenant(CONSUMER), name_of(each)), each)
    common: dict[str, Any] = {"tenant_id": row.tenant_id, "kept_at": timezone.now(), "files": 1}
    inputs = FolderRow.objects.create(
        folder_id=uuid4(), title="train", manifest=name_of(body), size_bytes=9, **common
    )
    left = FolderRow.objects.create(
        folder_id=uuid4(),
        title="outputs",
        manifest=name_of(body),
        size_bytes=len(WEIGHTS),
        lease_id=row.lease_id,
        host_id=world.host_id,
        exit_code=3,
        **common,
    )
    said = {"reason": "logs/: no such folder", "final": True, "at": timezone.now().isoformat()}
    LeaseRow.objects.update(
        inputs=inputs.folder_id,
        outputs=["out/", "logs/"],
        outputs_failed={str(world.host_id): said},
        closed_at=timezone.now(),
        state="closed",
    )

    page = html(consumer.get(f"/leases/{row.lease_id}").content)

    assert f'href="/folders/{inputs.folder_id}">train</a>' in page
    assert f'href="/folders/{left.folder_id}/all">Download all</a>' in page
    assert f"/folders/{left.folder_id}/file?path=out%2Fmodel.bin" in page
    assert "logs/: no such folder" in page and "Outputs kept" in page and "Outputs not kept" in page
    theirs = owner.get(f"/leases/{row.lease_id}").content.decode()
    assert "model.bin" not in theirs and str(left.folder_id) not in theirs
    assert "logs/: no such folder" not in theirs


def test_the_list_of_leases_leads_to_folders_for_who_may_see_them(world: World) -> None:
    def leads(slug: str, role: str) -> bool:
        return b'href="/folders"' in world.member(slug, role).get("/leases").content

    assert leads(CONSUMER, "consumer")
    assert not leads(OWNER, "owner")
