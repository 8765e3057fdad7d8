"""Folders from one machine's disk to another's, through the client, the API and the storage."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from marketplace.sdk import files, parcel
from marketplace.sdk.problems import Problem
from marketplace.sdk.spoken import NotUnderstood
from marketplace.storage.folder import FolderStorage
from tests.access.conftest import Caller
from tests.marketplace.files.here import Here

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


@pytest.fixture
def here(ada: Caller, kept: FolderStorage, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(ada, kept)
    monkeypatch.setattr(files, "transfers_of", made.transfers)
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs of a hundredth of their size: what is tried is where they begin and end."""
    for name in ("BLOB_BYTES", "PACKED_BELOW", "PACK_BYTES_MIN"):
        monkeypatch.setattr(parcel, name, getattr(parcel, name) // 128)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A folder of two large files, small ones, a script, links, an empty folder, and rubbish."""
    root = tmp_path / "train"
    for folder in ("data", ".git", "src/__pycache__", "logs"):
        (root / folder).mkdir(parents=True)
    (root / "data/weights").write_bytes(os.urandom(parcel.BLOB_BYTES + 5))
    (root / "data/big").write_bytes(os.urandom(parcel.PACKED_BELOW))
    for number in range(5):
        (root / f"src/part{number}.py").write_text(f"print({number})\n")
    (root / "src/empty.py").touch()
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "latest").symlink_to("data/weights")
    (root / "src/up").symlink_to("../data")
    (root / "out").symlink_to("/etc/passwd")
    (root / "secret.env").write_text("TOKEN=1")
    (root / ".git/config").write_text("x")
    (root / "src/__pycache__/a.pyc").write_text("x")
    (root / ".offpeakignore").write_text("*.env\n")
    return root


def tree(root: Path) -> dict[str, object]:
    """Return what is in a folder, as far as it is kept."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        elif not any(path.iterdir()):
            found[name] = "a folder"
    return found


LEFT_OUT = {"out", "secret.env", ".offpeakignore", ".git/config", "src/__pycache__/a.pyc"}


def test_what_is_brought_comes_back_the_same(
    here: Here, train: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = files.bring(here.session, train)
    said = capsys.readouterr()
    files.take(here.session, made, tmp_path / "back")

    wanted = {path: known for path, known in tree(train).items() if path not in LEFT_OUT}
    assert tree(tmp_path / "back") == wanted
    assert "9 files, 72.1 KiB: what is not there yet is sent." in said.err
    for path, why in (
        (".git/", "ignored"),
        ("secret.env", "ignored"),
        ("out", "a link that leads out of the folder"),
    ):
        assert f"Left out: {path} ({why})" in said.err
    assert made in said.out


def test_a_second_time_nothing_is_sent_and_a_change_sends_its_own_part(
    here: Here, train: Path
) -> None:
    first = files.bring(here.session, train)
    here.sent.clear()

    assert files.bring(here.session, train) == first
    assert here.sent == []
    with (train / "data/weights").open("r+b") as weights:
        weights.write(b"changed")
    assert files.bring(here.session, train) != first
    assert here.sent == ["PUT", "PUT"], "the part that was changed, and the new list of files"


def test_an_upload_that_breaks_off_is_continued(here: Here, train: Path) -> None:
    passed: list[str] = []

    def cut(request: httpx.Request) -> httpx.Response | None:
        if request.method != "PUT":
            return None
        passed.append(request.url.path)
        return None if len(passed) <= 2 else httpx.Response(507, json={"code": "storage-full"})

    here.trouble = cut
    with pytest.raises(Problem) as refused:
        files.bring(here.session, train)
    here.trouble = lambda request: None
    before = len(here.sent)
    files.bring(here.session, train)

    assert refused.value.code == "storage-full"
    assert before == 2
    assert len(here.sent) == len(set(passed[:2])) + len(here.sent[before:]) == 5


@pytest.mark.parametrize("status", [403, 500, 503])
def test_what_fails_in_passing_is_asked_for_again(here: Here, train: Path, status: int) -> None:
    failed = iter([True, True])

    def trouble(request: httpx.Request) -> httpx.Response | None:
        is_blob = request.url.path.startswith("/blobs/")
        return httpx.Response(status) if is_blob and next(failed, False) else None

    here.trouble = trouble

    assert files.bring(here.session, train)


def test_a_file_that_changes_while_it_is_read_is_named_and_nothing_kept(
    here: Here, train: Path
) -> None:
    def change(request: httpx.Request) -> None:
        if request.url.path.endswith("/missing"):
            (train / "data/big").write_bytes(os.urandom(parcel.PACKED_BELOW))

    here.trouble = change
    with pytest.raises(Problem, match="data/big changed while it was read"):
        files.bring(here.session, train)

    assert here.session.client.get("folders")["data"] == []


def test_what_storage_gives_is_checked_and_nothing_half_is_left(
    here: Here, train: Path, tmp_path: Path, kept: FolderStorage
) -> None:
    made = files.bring(here.session, train)
    [large] = [each for each in kept.root.rglob("*") if each.stat().st_size == parcel.BLOB_BYTES]
    with large.open("r+b") as blob:
        blob.write(b"damaged")

    with pytest.raises(Problem, match="is not what its name says"):
        files.take(here.session, made, tmp_path / "back")

    assert list((tmp_path / "back").iterdir()) == []


def test_a_folder_is_not_written_over_unless_that_is_said(
    here: Here, train: Path, tmp_path: Path
) -> None:
    made = files.bring(here.session, train)
    back = tmp_path / "back"
    back.mkdir()
    (back / "run.sh").write_text("mine")

    with pytest.raises(NotUnderstood, match="not empty"):
        files.take(here.session, made, back)
    files.take(here.session, made, back, overwrite=True)

    assert (back / "run.sh").read_text() == "#!/bin/sh\n"


def test_nothing_is_written_through_a_link_that_lies_in_the_way(
    here: Here, train: Path, tmp_path: Path
) -> None:
    made = files.bring(here.session, train)
    back, elsewhere = tmp_path / "back", tmp_path / "elsewhere"
    back.mkdir()
    elsewhere.mkdir()
    (back / "data").symlink_to(elsewhere)

    with pytest.raises(Problem, match="is a link"):
        files.take(here.session, made, back, overwrite=True)

    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"files": [{"path": "../out", "parts": []}]},
        {"files": [{"path": "/out", "parts": []}]},
        {"files": [{"path": "a\\out", "parts": []}]},
        {"files": [{"path": "a\0", "parts": []}]},
        {"files": [{"path": ".offpeak-unpacking/0", "parts": []}]},
        {"files": [{"path": "a", "parts": [[7, 0, 1]]}]},
        {"links": [{"path": "a", "to": "/etc"}]},
        {"links": [{"path": "a/b", "to": "../../x"}]},
        {"folders": ["../x"]},
    ],
)
def test_a_hostile_list_of_files_leads_nowhere(tmp_path: Path, changed: dict[str, object]) -> None:
    manifest = {"format": parcel.FORMAT, "blobs": [], "files": [], **changed}

    with pytest.raises(parcel.FolderWrong):
        parcel.unpack(tmp_path / "in", manifest, lambda sha256: b"")

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} <= {"in", "in/a"}


def test_a_folder_that_is_none_or_empty_is_refused(here: Here, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for folder in (tmp_path / "absent", tmp_path / "empty"):
        with pytest.raises(NotUnderstood):
            files.bring(here.session, folder)


def test_packs_end_where_they_did_before_a_small_file_grew(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:03}").write_bytes(os.urandom(500))
    before = parcel.pack(tmp_path, parcel.look(tmp_path, lambda path: False))
    (tmp_path / "005").write_bytes(os.urandom(600))
    after = parcel.pack(tmp_path, parcel.look(tmp_path, lambda path: False))

    assert len(before.blobs) > 3
    assert len(before.blobs.keys() & after.blobs.keys()) >= len(before.blobs) - 2
