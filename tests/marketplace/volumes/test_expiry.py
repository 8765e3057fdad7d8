"""What the clock does with volumes: first a notice, then the expiry, then the end of the files."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from ledger.eventstore.postgres import PostgresStore
from marketplace.models.folders import BlobUseRow
from marketplace.models.volumes import VolumeRow
from marketplace.storage.folder import FolderStorage
from marketplace.volumes import see_to_volumes
from tests.access.conftest import Caller
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit
from tests.marketplace.volumes.conftest import Keeping

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


@pytest.fixture
def mine(ada: Caller, unit: str, kept: FolderStorage) -> Keeping:
    made = Keeping(ada, kept, unit)
    assert made.create().status_code == 201
    assert made.bring(0, train=b"one").status_code == 201
    return made


def look(now: datetime) -> None:
    see_to_volumes(PostgresStore(), now=now)
    read()


def test_a_volume_is_told_of_expires_and_goes_and_an_extension_brings_it_back(
    mine: Keeping,
) -> None:
    now = timezone.now()
    look(now)
    assert mine.shown()["notified_at"] is None
    look(now + timedelta(days=23, hours=1))
    assert mine.shown()["notified_at"] is not None
    assert mine.shown()["expired_because"] == ""
    look(now + timedelta(days=31))
    assert mine.shown()["expired_because"] == "time"
    assert mine.bring(1, train=b"two").json()["code"] == "volume-over"
    again = {"expires_at": (now + timedelta(days=60)).isoformat()}
    assert mine.caller.ask("PATCH", "/api/v1/volumes/data", again).status_code == 200
    read()
    assert (mine.shown()["expired_because"], mine.shown()["notified_at"]) == ("", None)
    assert mine.bring(1, train=b"two").status_code == 201
    look(now + timedelta(days=54))
    look(now + timedelta(days=62))
    look(now + timedelta(days=75))
    assert BlobUseRow.objects.exists(), "its files stay for fourteen days"
    look(now + timedelta(days=77))
    assert not BlobUseRow.objects.exists()
    assert mine.caller.get("/api/v1/volumes/data").status_code == 404
    assert VolumeRow.objects.get().is_removed


def test_a_market_that_was_away_gives_its_notice_first(mine: Keeping) -> None:
    late = timezone.now() + timedelta(days=100)
    look(late)
    assert mine.shown()["expired_because"] == ""
    look(late + timedelta(days=6, hours=23))
    assert mine.shown()["expired_because"] == ""
    look(late + timedelta(days=7, hours=1))
    assert mine.shown()["expired_because"] == "time"


def test_the_files_stay_while_a_bid_names_them(mine: Keeping, market: Market) -> None:
    work = {"kind": "other", "command": ["true"], "volumes": [{"name": "data"}]}
    placed = mine.caller.post("/api/v1/bids", body(mine.unit, workload=work))
    read()
    now = timezone.now()
    for days in (25, 33, 60):
        look(now + timedelta(days=days))
    assert mine.shown()["expired_because"] == "time"
    assert mine.caller.delete(f"/api/v1/bids/{placed.json()['id']}").status_code == 200
    read()
    look(now + timedelta(days=61))
    assert mine.caller.get("/api/v1/volumes/data").status_code == 404
