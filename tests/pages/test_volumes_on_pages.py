"""The page of volumes: made, filled, extended, resized and removed, each for whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from config.wiring import build_storage, projections
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import MemberRow, Person
from marketplace import storage
from marketplace.models.volumes import VolumeRow
from marketplace.storage.download_links import PREFIX, wanted_by
from marketplace.storage.folder import FolderStorage
from marketplace.volumes import see_to_volumes
from tests.access.conftest import Caller, admit
from tests.marketplace.support.over_http import with_unit
from tests.marketplace.volumes.conftest import Keeping
from tests.pages.bid_form import form
from tests.pages.reading import html

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[FolderStorage]:
    ours = FolderStorage(tmp_path / "blobs")
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


@pytest.fixture
def unit(ada: Caller) -> str:
    unit = with_unit(ada)
    MemberRow.objects.filter(tenant_id=ada.tenant_id).update(subscriber_id=UUID(unit))
    return unit


def browser_of(caller: Caller) -> Client:
    client = Client()
    client.force_login(Person.objects.get(id=caller.user_id))
    return client


@pytest.fixture
def browser(ada: Caller, unit: str, kept: FolderStorage) -> Client:
    follow()
    return browser_of(ada)


def follow() -> None:
    while follow_projections(PostgresStore(), projections()):
        pass


def make(browser: Client, **more: object) -> object:
    said = {"token": str(uuid4()), "name": "data", "size_gib": 2, "days": 30, **more}
    answer = browser.post("/volumes", said)
    follow()
    return answer


def test_a_volume_is_made_on_the_page_and_shown_there(browser: Client) -> None:
    empty = html(browser.get("/volumes").content)
    done = make(browser)
    listed = html(browser.get("/volumes").content)
    shown = html(browser.get("/volumes/data").content)

    assert "No volumes yet" in empty and "$0.05" in empty
    assert getattr(done, "status_code", 0) == 302
    assert "/volumes/data" in listed and "2.0 GiB" in listed and "nothing in it yet" in listed
    assert "offpeak volumes put data" in shown and "nobody" in shown


@pytest.mark.parametrize(
    "wrong", [{"name": "Data"}, {"size_gib": 0}, {"size_gib": 5_000}, {"days": 3}, {"name": ""}]
)
def test_what_no_volume_can_be_is_told_on_the_page(
    browser: Client, wrong: dict[str, object]
) -> None:
    assert getattr(make(browser, **wrong), "status_code", 0) == 422
    assert not VolumeRow.objects.exists()


def test_its_files_are_listed_and_saved(browser: Client, ada: Caller, kept: FolderStorage) -> None:
    make(browser)
    brought = Keeping(ada, kept, "").bring(0, train=b"<script>", model=b"weights")
    follow()
    shown = html(browser.get("/volumes/data").content)
    sent_on = browser.get("/volumes/data/file", {"path": "train"})
    all_of_it = browser.get("/volumes/data/all")

    assert brought.status_code == 201
    assert "train" in shown and "Files of version 1" in shown
    wanted = wanted_by(sent_on["Location"].removeprefix(PREFIX))
    assert (wanted.tenant_id, wanted.path) == (str(ada.tenant_id), "train")
    assert wanted_by(all_of_it["Location"].removeprefix(PREFIX)).name == "data.zip"
    assert browser.get("/volumes/data/file", {"path": "other"}).status_code == 404


def test_a_volume_is_extended_resized_and_removed(browser: Client) -> None:
    make(browser)
    browser.post("/volumes/data/extend", {"days": 90})
    follow()
    browser.post("/volumes/data/resize", {"size_gib": 3})
    follow()
    row = VolumeRow.objects.get()
    sooner = browser.post("/volumes/data/extend", {"days": 10})
    short = browser.post("/volumes/data/extend", {"days": 2})
    large = browser.post("/volumes/data/resize", {"size_gib": 5_000})

    assert row.quota_bytes == 3 * 2**30
    assert row.expires_at - timezone.now() > timedelta(days=89)
    assert [each.status_code for each in (sooner, short, large)] == [422, 422, 422]
    assert "longer" in html(sooner.content)
    assert browser.post("/volumes/data/remove").status_code == 302
    follow()
    assert browser.get("/volumes/data").status_code == 404


def test_an_expiry_is_told_on_the_page(browser: Client) -> None:
    make(browser)
    see_to_volumes(PostgresStore(), now=timezone.now() + timedelta(days=25))
    follow()
    assert "Extend it, if it is still needed" in html(browser.get("/volumes/data").content)
    see_to_volumes(PostgresStore(), now=timezone.now() + timedelta(days=33))
    follow()
    assert "Extending it brings it back" in html(browser.get("/volumes/data").content)


def test_others_see_no_volume_and_owners_none_of_the_page(
    browser: Client, kept: FolderStorage
) -> None:
    make(browser)
    bob = browser_of(admit("bob-works", "consumer"))
    owner = browser_of(admit("carol-owns", "owner"))

    assert bob.get("/volumes/data").status_code == 404
    assert "/volumes/data" not in html(bob.get("/volumes").content)
    for what in ("extend", "resize", "remove"):
        said = {"days": 90, "size_gib": 3}
        assert bob.post(f"/volumes/data/{what}", said).status_code == 404
    assert owner.get("/volumes").status_code == 403
    assert 'href="/volumes"' not in html(owner.get("/offers").content)


def test_a_bid_by_the_form_finds_volumes_and_its_page_names_them(browser: Client) -> None:
    make(browser)
    unknown = browser.post("/bids/new", form(gpu="", volumes="other"))
    unread = browser.post("/bids/new", form(gpu="", volumes="data:/abs"))
    placed = browser.post("/bids/new", form(gpu="", volumes="data:in/set"))
    follow()
    bid = html(browser.get(placed["Location"]).content)
    volume = html(browser.get("/volumes/data").content)

    assert (unknown.status_code, unread.status_code) == (422, 422)
    assert placed.status_code == 302
    assert 'href="/volumes/data"' in bid and "in/set" in bid
    assert "a bid" in volume
    assert browser.post("/volumes/data/remove").status_code == 422
