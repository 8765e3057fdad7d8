"""A page sends a folder where storage is a bucket: straight, or through the market."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marketplace.models.folders import FolderRow
from marketplace.storage.contents import Pieces, manifest_at
from marketplace.storage.s3 import S3Storage
from tests.pages.browser import browsing, enter, served
from tests.pages.governing import govern
from tests.pages.world import CONSUMER, World
from tests.s3_teeth.server import SECRET, S3Teeth

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]

FILES = {"train.py": b"print('hello')\n", "weights.bin": b"weights " * 200_000}
SENT = "train: 2 files, 1.5 MiB sent."


@pytest.fixture
def bucket() -> Iterator[S3Teeth]:
    teeth = S3Teeth()
    teeth.start()
    yield teeth
    teeth.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "train"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return folder


def settings_of(bucket: S3Teeth) -> dict[str, Any]:
    return {
        "OFFPEAK_STORAGE": "s3",
        "OFFPEAK_STORAGE_BUCKET": bucket.bucket,
        "OFFPEAK_STORAGE_ENDPOINT_URL": bucket.url,
        "AWS_ACCESS_KEY_ID": bucket.key_id,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def files_in(bucket: S3Teeth) -> dict[str, bytes]:
    """Return what the one folder that is kept has, as it lies in the bucket."""
    kept = FolderRow.objects.get()
    storage = S3Storage(
        bucket.bucket,
        region="us-east-1",
        endpoint_url=bucket.url,
        access_key_id=bucket.key_id,
        secret_access_key=SECRET,
    )
    manifest = manifest_at(storage, kept.tenant_id, kept.manifest)
    pieces = Pieces(storage, kept.tenant_id, manifest)
    return {file.path: b"".join(pieces.of_file(file)) for file in manifest.files}


@pytest.mark.parametrize("lets_pages_in", [True, False], ids=["CORS", "no CORS"])
def test_a_folder_goes_straight_where_the_bucket_lets_pages_in_and_else_through_the_market(
    bucket: S3Teeth, folder: Path, tmp_path: Path, lets_pages_in: bool
) -> None:
    bucket.lets_pages_in = lets_pages_in
    world = World()
    world.found()
    govern(world)
    ways: list[str] = []
    with (
        served(tmp_path / "site.log", **settings_of(bucket)) as site,
        browsing() as (context, page, _said),
    ):
        page.on("response", lambda answer: ways.append(f"{answer.request.method} {answer.url}"))
        enter(context, site, world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/run")
        page.set_input_files("#folder", folder)
        page.get_by_text(SENT).wait_for()
        page.set_input_files("#folder", folder)
        page.get_by_text("train: 2 files, 0.0 KiB sent.").wait_for()

    world.settle()
    assert files_in(bucket) == FILES
    straight = {each for each in ways if each.startswith(f"PUT {bucket.url}/")}
    through = {each for each in ways if each.startswith(f"PUT {site}/blobs/")}
    assert (bool(straight), bool(through)) == (lets_pages_in, not lets_pages_in)


def test_a_bucket_that_no_browser_reaches_is_filled_through_the_market(
    bucket: S3Teeth, folder: Path, tmp_path: Path
) -> None:
    """As behind a firewall: the browser's way there is cut, the server's is not."""
    world = World()
    world.found()
    govern(world)
    with (
        served(tmp_path / "site.log", **settings_of(bucket)) as site,
        browsing() as (context, page, _said),
    ):
        context.route(f"{bucket.url}/**", lambda route: route.abort("connectionfailed"))
        enter(context, site, world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/run")
        page.set_input_files("#folder", folder)
        page.get_by_text(SENT).wait_for()

    world.settle()
    assert files_in(bucket) == FILES


def test_what_was_sent_before_a_cut_is_not_sent_again(
    bucket: S3Teeth, folder: Path, tmp_path: Path
) -> None:
    """The market goes away with the manifest outstanding; the same folder is chosen again."""
    world = World()
    world.found()
    govern(world)
    sent: list[int] = []
    with (
        served(tmp_path / "site.log", **settings_of(bucket)) as site,
        browsing() as (context, page, _said),
    ):
        enter(context, site, world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/run")
        context.route(f"{site}/api/v1/folders", lambda route: route.abort("connectionfailed"))
        page.set_input_files("#folder", folder)
        page.get_by_text("The folder was not sent. Choose it again.").wait_for()
        context.unroute(f"{site}/api/v1/folders")
        page.on(
            "request",
            lambda asked: (
                sent.append(len(json.loads(asked.post_data or "{}")["blobs"]))
                if "folders/missing" in asked.url
                else None
            ),
        )
        page.set_input_files("#folder", folder)
        page.get_by_text("train: 2 files, 0.0 KiB sent.").wait_for()

    world.settle()
    assert (sent, files_in(bucket)) == ([3], FILES)
