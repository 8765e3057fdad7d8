"""Finance reads why an export is not there, and what to do, in sentences."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from ledger.domain.export_plans import NothingPlanned
from ledger.export_delivery import FolderTarget, target_named
from ledger.export_failures import UNKNOWN, said_by_system, why_not_written


def failure_of(target: str, tmp_path: Path, endpoint_url: str = "") -> Exception:
    """Return how bringing a file to a place fails."""
    file = tmp_path / "file"
    file.write_text("a month")
    place = target_named(target, region="us-east-1", endpoint_url=endpoint_url)
    with pytest.raises(OSError) as failed:
        place.put("2026-01/manifest.json", file)
    return failed.value


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "The folder is missing."),
        (errno.EACCES, "The market may not write there."),
        (errno.EPERM, "The market may not write there."),
        (errno.EROFS, "The folder can only be read."),
        (errno.ENOSPC, "The disk is full."),
        (errno.EDQUOT, "The market has used up its share of the disk."),
        (errno.ESTALE, "The disk or the share reports a fault."),
    ],
)
def test_what_a_folder_lacks_is_said_with_what_to_do(number: int, words: str) -> None:
    told = why_not_written(OSError(number, os.strerror(number), "/srv/finance"))

    assert told.startswith(words) and len(told) > len(words) + 10
    assert "Errno" not in told and "/srv" not in told


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("a file")
    file = tmp_path / "file"
    file.write_text("a month")

    with pytest.raises(OSError) as failed:
        FolderTarget(tmp_path / "place").put("2026-01/manifest.json", file)

    assert why_not_written(failed.value).startswith("There is a file where a folder should be.")


def test_a_bucket_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="another")
        failed = failure_of("s3://finance/offpeak", tmp_path)

    assert why_not_written(failed).startswith("There is no such bucket.")
    assert "NoSuchBucket" in said_by_system(failed)


def test_a_host_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    failed = failure_of("s3://finance", tmp_path, endpoint_url="http://127.0.0.1:9")

    assert why_not_written(failed).startswith("The host of the bucket is unknown")


def test_a_refusal_keeps_its_sentence_and_the_rest_is_found_in_the_log() -> None:
    assert why_not_written(NothingPlanned()).startswith(NothingPlanned.message())
    assert why_not_written(ValueError("a row")) == UNKNOWN
