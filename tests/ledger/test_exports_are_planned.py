"""Exports that finance planned: brought each day or after each closing, once, whatever happens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid5

import boto3
import pytest
from moto import mock_aws

from ledger import closing
from ledger.commands.closing import close_period, soft_close_period
from ledger.commands.export_plans import end_export_plan, plan_exports
from ledger.domain.events import TenantRegistered
from ledger.domain.export_plans import (
    Every,
    ExportPlanOtherwise,
    ExportPlanUnknown,
    FolderUnreadable,
    NothingPlanned,
    PlannedExportsBrought,
    PlannedExportsNotBrought,
)
from ledger.domain.ids import AccountId, UserId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Expect, NewEvent
from ledger.export_delivery import FolderTarget, Target, target_named
from ledger.models import AccountRow, ExportPlanRow
from ledger.planned_exports import deliver_planned
from ledger.projections.exports import EXPORTS
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import JANUARY

pytestmark = pytest.mark.django_db

PLAN = uuid5(book.WORLD, "a plan")
USER = UserId(book.WORLD)
LAST = datetime(2026, 1, 31, 22, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def month(store: MemoryStore) -> MemoryStore:
    platform = TenantRegistered(
        tenant_id=PLATFORM_ID,
        slug="platform",
        title="Platform",
        currency="USD",
        is_platform=True,
        at=NOON,
    )
    fresh = [NewEvent(uuid5(book.WORLD, "the platform"), platform)]
    store.append(f"tenant-{PLATFORM_ID}", fresh, expected=Expect.ANY, by=SOMEBODY)
    busy_month.live_through(store)
    busy_month.follow(store)
    return store


def plan(
    store: MemoryStore,
    every: Every = "day",
    *,
    plan_id: UUID = PLAN,
    folder: str = "lake",
    formats: Sequence[str] = ("focus", "gl"),
    now: datetime = NOON,
) -> None:
    plan_exports(
        store,
        plan_id=plan_id,
        every=every,
        formats=formats,
        folder=folder,
        user_id=USER,
        by=SOMEBODY,
        now=now,
    )
    busy_month.follow(store)


def deliver(store: MemoryStore, place: Path | Target, now: datetime) -> int:
    target = FolderTarget(place) if isinstance(place, Path) else place
    brought = deliver_planned(store, lambda: target, now=now)
    busy_month.follow(store)
    return brought


def told(store: MemoryStore, kind: type[object]) -> list[object]:
    page = store.read_all(after=START, limit=10_000)
    return [each.event for each in page.events if isinstance(each.event, kind)]


def later(store: MemoryStore) -> None:
    account = AccountId(AccountRow.objects.get(kind="prepaid").pk)
    book.fund(store, book.usd(3), account=account, entry=f"{store.head()}", now=NOON)
    busy_month.follow(store)


def checked(folder: Path) -> list[str]:
    """Return the files that a folder's manifest names; each is what it says."""
    said = json.loads((folder / "manifest.json").read_text())["files"]
    for each in said:
        data = (folder / each["file"]).read_bytes()
        assert each["sha256"] == hashlib.sha256(data).hexdigest()
    return [each["format"] for each in said]


def test_each_day_the_month_so_far_is_brought_once(month: MemoryStore, tmp_path: Path) -> None:
    plan(month)
    plan(month, now=NOON + DAY)  # asked twice is once

    assert deliver(month, tmp_path, NOON) == 0  # its first day is not over
    assert [deliver(month, tmp_path, NOON + DAY) for _ in range(2)] == [1, 0]
    later(month)
    assert [deliver(month, tmp_path, NOON + 2 * DAY) for _ in range(2)] == [1, 0]

    first, second = sorted((tmp_path / "lake").iterdir())
    assert (first.name, second.name) == ("2026-01-05", "2026-01-06")
    assert checked(first) == checked(second) == ["focus", "gl"]
    assert len(told(month, PlannedExportsBrought)) == 2


def test_the_last_day_of_a_month_is_of_that_month(month: MemoryStore, tmp_path: Path) -> None:
    plan(month)

    assert deliver(month, tmp_path, LAST + timedelta(hours=3)) == 1

    (file,) = (tmp_path / "lake" / "2026-01-31").glob("*-focus-*")
    assert "2026-01-at" in file.name


def test_killed_before_the_manifest_the_same_bytes_are_brought_again(
    month: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(month)
    whole = FolderTarget.put

    class Killed(BaseException):
        pass

    def put(self: FolderTarget, path: str, file: Path) -> None:
        if path.endswith("manifest.json"):
            raise Killed
        whole(self, path, file)

    with monkeypatch.context() as at:
        at.setattr(FolderTarget, "put", put)
        with pytest.raises(Killed):
            deliver(month, tmp_path, NOON + DAY)
    folder = tmp_path / "lake" / "2026-01-05"
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert len(before) == 2

    busy_month.follow(month)
    later(month)
    assert deliver(month, tmp_path, NOON + DAY) == 1

    assert checked(folder) == ["focus", "gl"]
    after = {each.name: each.read_bytes() for each in folder.iterdir()}
    del after["manifest.json"]
    assert after == before


def test_one_that_fails_is_tried_again_and_told_once(month: MemoryStore, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.write_text("where a folder should be")
    plan(month)
    plan(month, plan_id=uuid5(PLAN, "more"), folder="lake-2", formats=["no-such-form"])

    for _ in range(2):
        assert deliver(month, away, NOON + DAY) == 0
    assert len(told(month, PlannedExportsNotBrought)) == 2
    assert len(told(month, NoticeGiven)) == 2
    assert set(ExportPlanRow.objects.values_list("failed_at", flat=True)) == {NOON + DAY}

    away.unlink()
    assert deliver(month, away, NOON + DAY) == 1
    row = ExportPlanRow.objects.get(pk=PLAN)
    assert (row.words, row.failed_at, row.brought_at) == ("", None, NOON + DAY)


def test_a_month_is_brought_each_time_it_is_closed_and_says_what_came(
    month: MemoryStore, tmp_path: Path
) -> None:
    plan(month, "month")
    _close(month)
    assert [deliver(month, tmp_path, invoiced.LATER) for _ in range(2)] == [1, 0]

    invoiced.reopen(month, JANUARY)
    later(month)
    _close(month)
    assert [deliver(month, tmp_path, invoiced.LATER) for _ in range(2)] == [1, 0]

    folders = sorted(tmp_path.glob("lake/*"), key=lambda each: int(each.name.split("-at-")[1]))
    first, second = (json.loads((each / "manifest.json").read_text())["files"] for each in folders)
    assert "differs_from" not in first[0]
    differs = second[0]["differs_from"]
    assert (differs["sha256"], differs["rows"]) == (first[0]["sha256"], 1)
    assert differs["entries_count"] == 1


def _close(store: MemoryStore) -> None:
    when = JANUARY.window.ends_at + DAY
    soft_close_period(store, JANUARY, user_id=USER, by=SOMEBODY, now=when)
    close_period(store, JANUARY, checks=[invoiced.MET], user_id=USER, by=SOMEBODY, now=when)
    busy_month.follow(store)
    closing.freeze_closed(store, now=when)
    busy_month.follow(store)


def test_a_bucket_gets_the_manifest_last(
    month: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    plan(month)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="finance")
        place = target_named("s3://finance/offpeak", region="us-east-1", endpoint_url="")
        order: list[str] = []
        put = type(place).put

        def noted(self: Target, path: str, file: Path) -> None:
            order.append(path.rsplit("/")[-1])
            put(self, path, file)

        monkeypatch.setattr(type(place), "put", noted)
        assert deliver(month, place, NOON + DAY) == 1

        found = client.list_objects_v2(Bucket="finance", Prefix="offpeak/lake/2026-01-05/")
        assert len(found["Contents"]) == 3
        assert order[-1] == "manifest.json"


def test_a_plan_that_ended_brings_nothing(month: MemoryStore, tmp_path: Path) -> None:
    plan(month)
    for _ in range(2):
        end_export_plan(month, PLAN, user_id=USER, by=SOMEBODY, now=NOON)
    busy_month.follow(month)

    assert deliver(month, tmp_path, NOON + DAY) == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ExportPlanUnknown):
        end_export_plan(month, uuid5(PLAN, "none"), user_id=USER, by=SOMEBODY, now=NOON)


@pytest.mark.parametrize("folder", ["", "/srv", "../up", "a/b", "Lake", "x" * 61])
def test_a_folder_lies_in_the_operators_place(month: MemoryStore, folder: str) -> None:
    with pytest.raises(FolderUnreadable):
        plan(month, folder=folder)


def test_a_plan_says_what_and_says_it_once(month: MemoryStore) -> None:
    with pytest.raises(NothingPlanned):
        plan(month, formats=[])
    plan(month)
    with pytest.raises(ExportPlanOtherwise):
        plan(month, folder="another")


def test_rows_of_plans_are_what_their_streams_say(month: MemoryStore, tmp_path: Path) -> None:
    plan(month)
    deliver(month, tmp_path, NOON + DAY)
    before = fingerprint(EXPORTS.tables)

    rebuild(month, EXPORTS)

    assert fingerprint(EXPORTS.tables) == before
