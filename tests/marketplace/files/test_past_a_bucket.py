"""A machine that cannot reach the bucket: its folders go and come through the market."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.conf import settings

from config.wiring import build_storage
from marketplace import storage
from marketplace.models.folders import FolderRow
from marketplace.sdk import files
from marketplace.sdk.problems import Problem
from marketplace.storage.port import BlobKey
from marketplace.storage.s3 import S3Storage
from tests.access.conftest import Caller
from tests.contracts.storages.conftest import s3_of
from tests.contracts.storages.conftest import teeth as teeth
from tests.marketplace.files.conftest import name_of
from tests.marketplace.files.here import Here
from tests.s3_teeth.server import S3Teeth

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]

FILES = {"train.py": b"print('hello')\n", "weights": b"weights " * 300_000}
BLOCKED = "<html>This site is blocked by your administrator.</html>"


class Way:
    """From this machine to the bucket. state: open, cut, or a filter answers in its place."""

    def __init__(self, teeth: S3Teeth) -> None:
        self._port = int(teeth.url.rpartition(":")[2])
        self.state = "open"
        self.straight: list[str] = []
        self.refusal: httpx.Response | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response | None:
        if request.url.port != self._port:
            return None
        self.straight.append(request.method)
        if self.state == "cut":
            raise httpx.ConnectTimeout("nothing comes back", request=request)
        if self.state == "filtered":
            return httpx.Response(403, text=BLOCKED)
        return httpx.request(
            request.method, str(request.url), content=request.content, headers=request.headers
        )


@pytest.fixture
def bucket(teeth: S3Teeth) -> Iterator[S3Storage]:
    ours = s3_of(teeth)
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@pytest.fixture
def way(teeth: S3Teeth) -> Way:
    return Way(teeth)


@pytest.fixture
def here(ada: Caller, bucket: S3Storage, way: Way, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(ada, bucket)
    made.trouble = way
    monkeypatch.setattr(files, "transfers_of", made.transfers)
    return made


@pytest.fixture
def train(tmp_path: Path) -> Path:
    root = tmp_path / "train"
    root.mkdir()
    for name, data in FILES.items():
        (root / name).write_bytes(data)
    return root


def read_back(here: Here, made: str, to: Path) -> dict[str, bytes]:
    files.take(here.session, made, to)
    return {each.name: each.read_bytes() for each in to.iterdir()}


def test_bytes_go_straight_while_that_works(
    here: Here, way: Way, train: Path, tmp_path: Path
) -> None:
    made = files.bring(here.session, train)

    assert read_back(here, made, tmp_path / "back") == FILES
    assert (sorted(set(way.straight)), here.sent) == (["GET", "PUT"], [])


@pytest.mark.parametrize("state", ["cut", "filtered"])
def test_a_folder_goes_and_comes_through_the_market_where_the_bucket_is_not_reached(
    here: Here, way: Way, train: Path, tmp_path: Path, state: str
) -> None:
    way.state = state

    made = files.bring(here.session, train)

    assert read_back(here, made, tmp_path / "back") == FILES
    assert {"GET", "PUT"} == set(here.sent)
    assert len(way.straight) <= 6, "the bucket is not tried for each part"


def test_a_way_that_is_cut_midway_loses_nothing_that_was_sent(
    here: Here, way: Way, train: Path, tmp_path: Path
) -> None:
    made = files.bring(here.session, train)
    (train / "more").write_bytes(b"more " * 300_000)
    way.straight.clear()
    way.state = "cut"

    files.bring(here.session, train)

    assert here.sent == ["PUT", "PUT"], "the new part and the list of files"
    assert read_back(here, made, tmp_path / "back") == FILES


def test_what_the_bucket_itself_refuses_is_no_reason_to_go_round_it(
    here: Here, way: Way, teeth: S3Teeth, train: Path
) -> None:
    teeth.trouble += ["403 Forbidden"] * 3

    files.bring(here.session, train)

    assert here.sent == []


def test_what_comes_through_the_market_is_checked_all_the_same(
    here: Here, way: Way, bucket: S3Storage, train: Path, tmp_path: Path
) -> None:
    made = files.bring(here.session, train)
    large = BlobKey(FolderRow.objects.get().tenant_id, name_of(FILES["weights"]))
    assert bucket.read(large)
    bucket._client.put_object(Bucket=bucket._bucket, Key=large.path, Body=b"damaged")
    way.state = "cut"

    with pytest.raises(Problem, match="is not what its name says"):
        files.take(here.session, made, tmp_path / "back")

    assert list((tmp_path / "back").iterdir()) == []
