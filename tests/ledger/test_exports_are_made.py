"""Exports made meanwhile, brought to finance, and equal whatever happens on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid5

import pytest

from ledger import closing, exporting, exports
from ledger.commands.closing import close_period, soft_close_period
from ledger.commands.exports import ask_export, set_gl_mapping
from ledger.domain.events import TenantRegistered
from ledger.domain.export_deliveries import ExportsDelivered, ExportsNotDelivered
from ledger.domain.export_runs import ExportAskedOtherwise, ExportUnknown
from ledger.domain.gl_mapping import AccountKindUnknown, GlMapping, NameMissing
from ledger.domain.ids import AccountId, UserId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Expect, NewEvent, Position
from ledger.export_delivery import FolderTarget, deliver_closed, target_named
from ledger.exporting import bytes_of, drop_old_exports, file_of, make_exports
from ledger.models import AccountRow, ExportDeliveryRow, ExportProgress, ExportRunRow
from ledger.queries.exports import export_run, export_runs, progress_of
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR, FINANCE, JANUARY, OWNER_FINANCE

pytestmark = pytest.mark.django_db

RUN = uuid5(book.WORLD, "an export")
USER = UserId(book.WORLD)
LATER = datetime.fromisoformat("2026-03-09T08:00:00+00:00")


@pytest.fixture
def month(store: MemoryStore) -> MemoryStore:
    busy_month.live_through(store)
    busy_month.follow(store)
    return store


def ask(
    store: MemoryStore, name: str = "focus", *, run: UUID = RUN, everything: bool = True
) -> None:
    ask_export(
        store,
        export_id=run,
        tenant_id=PLATFORM_ID if everything else book.CONSUMER,
        everything=everything,
        name=name,
        period=JANUARY,
        position=exports.position_asked(None),
        user_id=USER,
        by=SOMEBODY,
        now=NOON,
    )
    busy_month.follow(store)


def make(store: MemoryStore, folder: Path) -> int:
    made = make_exports(store, folder, now=LATER)
    busy_month.follow(store)
    return made


def test_an_export_is_made_once_and_is_what_its_manifest_says(
    month: MemoryStore, tmp_path: Path
) -> None:
    ask(month)
    ask(month)  # asked twice is once

    assert (make(month, tmp_path), make(month, tmp_path)) == (1, 0)

    row = ExportRunRow.objects.get()
    data = b"".join(bytes_of(tmp_path, row))
    assert (row.state, row.bytes) == ("made", len(data))
    assert row.sha256 == hashlib.sha256(data).hexdigest()
    assert row.rows is not None and row.rows > busy_month.LEASES
    assert set(row.sums) == {"USD", "EUR"}


@pytest.mark.parametrize("name", ["focus-parquet", "xlsx", "gl"])
def test_a_file_that_is_gone_is_written_again(
    month: MemoryStore, tmp_path: Path, name: str
) -> None:
    ask(month, name)
    make(month, tmp_path)
    row = ExportRunRow.objects.get()
    kept = b"".join(bytes_of(tmp_path, row))
    account = AccountId(AccountRow.objects.get(kind="prepaid").pk)
    book.fund(month, book.usd(3), account=account, entry="later")
    busy_month.follow(month)

    file_of(tmp_path, row).unlink()

    assert b"".join(bytes_of(tmp_path, row)) == kept


def test_killed_while_it_is_written_it_is_written_anew(
    month: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(month)

    class Killed(BaseException):
        pass

    def die(*args: object, **kwargs: object) -> None:
        raise Killed

    for step in ("finish_export", "os.fsync"):
        with monkeypatch.context() as at:
            at.setattr(f"ledger.exporting.{step}", die)
            with pytest.raises(Killed):
                make_exports(month, tmp_path, now=LATER)
        assert ExportRunRow.objects.get().state == "asked"

    assert make(month, tmp_path) == 1
    assert ExportRunRow.objects.get().state == "made"


def test_one_that_fails_says_why_and_holds_up_no_other(month: MemoryStore, tmp_path: Path) -> None:
    ask(month, "no-such-form")
    ask(month, run=uuid5(RUN, "another"))

    assert make(month, tmp_path) == 2

    failed = ExportRunRow.objects.get(pk=RUN)
    assert (failed.state, failed.words != "") == ("failed", True)
    assert ExportRunRow.objects.exclude(pk=RUN).get().state == "made"


def test_who_looks_on_sees_how_far_it_is(month: MemoryStore, tmp_path: Path) -> None:
    ask(month)
    seen: list[int] = []
    noted = exporting._Noted(RUN, 80)
    for rows in (0, 20, 60, 400):
        noted._last = 0.0
        noted.tell(rows, rows * 900)
        seen.append(progress_of([RUN])[RUN].percent)

    assert seen == [0, 25, 75, 99]
    make(month, tmp_path)
    drop_old_exports(tmp_path, now=LATER)
    assert not ExportProgress.objects.exists()


def test_files_are_dropped_after_a_week(month: MemoryStore, tmp_path: Path) -> None:
    ask(month)
    make(month, tmp_path)
    file = file_of(tmp_path, ExportRunRow.objects.get())
    made = datetime.fromtimestamp(file.stat().st_mtime, tz=LATER.tzinfo)

    assert drop_old_exports(tmp_path, now=made + timedelta(days=6)) == 0
    assert drop_old_exports(tmp_path, now=made + timedelta(days=8)) == 1
    assert not file.exists()


def test_each_sees_their_own_exports_alone(month: MemoryStore, tmp_path: Path) -> None:
    ask(month)
    ask(month, run=uuid5(RUN, "mine"), everything=False)
    make(month, tmp_path)

    assert export_runs(AUDITOR).count() == 2
    assert [row.everything for row in export_runs(FINANCE)] == [False]
    with pytest.raises(ExportUnknown):
        export_run(FINANCE, RUN)
    with pytest.raises(ExportUnknown):
        export_run(OWNER_FINANCE, uuid5(RUN, "mine"))
    mine = b"".join(bytes_of(tmp_path, export_run(FINANCE, uuid5(RUN, "mine"))))
    position = ExportRunRow.objects.exclude(everything=True).get().position
    asked = exports.export(FINANCE, "focus", period=JANUARY, position=Position(position))
    assert mine == b"".join(asked)


def test_an_id_is_that_of_one_export(month: MemoryStore) -> None:
    ask(month)

    with pytest.raises(ExportAskedOtherwise):
        ask(month, "gl")


# --- how accounts are called ---------------------------------------------------------------


def test_an_export_keeps_the_names_of_its_position(month: MemoryStore) -> None:
    mapping = GlMapping({"prepaid": "210000"}, company="2000")
    before = month.head()
    old = sap(before)
    set_gl_mapping(month, mapping, user_id=USER, by=SOMEBODY, now=NOON)
    set_gl_mapping(month, mapping, user_id=USER, by=SOMEBODY, now=NOON)
    busy_month.follow(month)

    assert month.head() == before + 1
    assert b"210000" in sap(month.head()) and b"210000" not in old
    assert sap(before) == old


@pytest.mark.parametrize(
    ("accounts", "refusal"),
    [({"prepaidd": "1"}, AccountKindUnknown), ({"prepaid": "  "}, NameMissing)],
)
def test_a_mapping_names_kinds_that_there_are(
    month: MemoryStore, accounts: dict[str, str], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        set_gl_mapping(month, GlMapping(accounts), user_id=USER, by=SOMEBODY, now=NOON)


def sap(position: Position) -> bytes:
    return b"".join(exports.export(AUDITOR, "gl-sap", period=JANUARY, position=position))


# --- brought by themselves -----------------------------------------------------------------

FORMATS = ("focus", "gl")


@pytest.fixture
def closed(month: MemoryStore) -> MemoryStore:
    platform = TenantRegistered(
        tenant_id=PLATFORM_ID,
        slug="platform",
        title="Platform",
        currency="USD",
        is_platform=True,
        at=NOON,
    )
    fresh = [NewEvent(uuid5(book.WORLD, "the platform"), platform)]
    month.append(f"tenant-{PLATFORM_ID}", fresh, expected=Expect.ANY, by=SOMEBODY)
    soft_close_period(month, JANUARY, user_id=USER, by=SOMEBODY, now=LATER)
    close_period(month, JANUARY, checks=[], user_id=USER, by=SOMEBODY, now=LATER)
    busy_month.follow(month)
    closing.freeze_closed(month, now=LATER)
    busy_month.follow(month)
    return month


def deliver(store: MemoryStore, folder: Path, formats: Sequence[str] = FORMATS) -> int:
    brought = deliver_closed(store, lambda: FolderTarget(folder), formats=formats, now=LATER)
    busy_month.follow(store)
    return brought


def told(store: MemoryStore, kind: type[object]) -> list[object]:
    page = store.read_all(after=START, limit=10_000)
    return [each.event for each in page.events if isinstance(each.event, kind)]


def test_a_closed_month_is_brought_once_with_its_manifest(
    closed: MemoryStore, tmp_path: Path
) -> None:
    assert (deliver(closed, tmp_path), deliver(closed, tmp_path)) == (1, 0)

    (folder,) = tmp_path.iterdir()
    said = json.loads((folder / "manifest.json").read_text())["files"]
    assert [each["format"] for each in said] == list(FORMATS)
    for each in said:
        data = (folder / each["file"]).read_bytes()
        assert each["sha256"] == hashlib.sha256(data).hexdigest()
        assert each["head_hash"] != ""
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(each["file"] for each in said),
    }
    assert len(told(closed, ExportsDelivered)) == 1


def test_what_was_missed_is_caught_up_and_told_once(closed: MemoryStore, tmp_path: Path) -> None:
    away = tmp_path / "file"
    away.write_text("where a folder should be")

    assert (deliver(closed, away), deliver(closed, away)) == (0, 0)

    assert len(told(closed, ExportsNotDelivered)) == 1
    (notice,) = told(closed, NoticeGiven)
    assert isinstance(notice, NoticeGiven) and "2026-01" in notice.title
    assert "There is a file where a folder should be." in notice.body
    assert "Error: [Errno" in notice.body
    assert ExportDeliveryRow.objects.get().failed_at == LATER
    assert ExportDeliveryRow.objects.get().words.startswith("There is a file where a folder")

    away.unlink()
    assert deliver(closed, away) == 1
    row = ExportDeliveryRow.objects.get()
    assert (row.words, row.failed_at, row.delivered_at) == ("", None, LATER)


def test_broken_off_there_is_no_manifest(
    closed: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    whole = FolderTarget.put

    def put(self: FolderTarget, path: str, file: Path) -> None:
        if "gl" in path:
            raise Killed
        whole(self, path, file)

    with monkeypatch.context() as at:
        at.setattr(FolderTarget, "put", put)
        with pytest.raises(Killed):
            deliver(closed, tmp_path)
    assert not list(tmp_path.rglob("manifest.json"))

    assert deliver(closed, tmp_path) == 1
    assert len(list(tmp_path.rglob("manifest.json"))) == 1


def test_a_form_that_is_none_is_told(closed: MemoryStore, tmp_path: Path) -> None:
    assert deliver(closed, tmp_path, ["focuss"]) == 0

    assert ExportDeliveryRow.objects.get().words != ""


def test_a_target_is_a_folder_or_a_bucket() -> None:
    folder = target_named("/srv/finance", region="us-east-1", endpoint_url="")
    bucket = target_named("s3://finance/offpeak/", region="us-east-1", endpoint_url="")

    assert (folder.name, bucket.name) == ("/srv/finance", "s3://finance/offpeak")
