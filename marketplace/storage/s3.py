"""Blobs in a bucket of Amazon S3, or of whatever speaks its API, by presigned links.

The length and the checksum are signed into a link, so that the storage itself refuses other bytes.
Links are made here and not by clients: some SDKs sign the checksum into the query, where S3 does
not look at it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from marketplace.storage.port import LINK_SECONDS, BlobKey, Link, StorageAway

ASKED_AT_ONCE = 16
DELETED_AT_ONCE = 1_000
TIMEOUT_SECONDS = 10
ABSENT = ("404", "NoSuchKey", "NotFound")

log = structlog.get_logger()


class S3Storage:
    """A bucket. Safe for threads, as boto3's clients are.

    Without keys boto3's own chain is asked (environment, profile, instance role).
    """

    def __init__(
        self,
        bucket: str,
        *,
        region: str,
        endpoint_url: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        attempts_max: int = 3,
    ) -> None:
        self._bucket = bucket
        self._client: Any = boto3.client(
            "s3",
            region_name=region,
            endpoint_url=endpoint_url,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path" if endpoint_url else "auto"},
                connect_timeout=TIMEOUT_SECONDS,
                read_timeout=TIMEOUT_SECONDS,
                max_pool_connections=ASKED_AT_ONCE,
                retries={"total_max_attempts": attempts_max, "mode": "standard"},
            ),
        )

    def put_link(self, key: BlobKey, size: int) -> Link:
        """Return a link to the bucket for exactly these bytes."""
        checksum = base64.b64encode(bytes.fromhex(key.sha256)).decode()
        said = {
            "Bucket": self._bucket,
            "Key": key.path,
            "ContentLength": size,
            "ChecksumSHA256": checksum,
        }
        with _told():
            url = self._client.generate_presigned_url("put_object", said, ExpiresIn=LINK_SECONDS)
        return Link(url, {"x-amz-checksum-sha256": checksum})

    def get_link(self, key: BlobKey) -> Link:
        """Return a link to the bucket."""
        said = {"Bucket": self._bucket, "Key": key.path}
        with _told():
            url = self._client.generate_presigned_url("get_object", said, ExpiresIn=LINK_SECONDS)
        return Link(url)

    def sizes(self, keys: Sequence[BlobKey]) -> Mapping[BlobKey, int]:
        """Ask for each, several at a time."""
        with ThreadPoolExecutor(ASKED_AT_ONCE, "blobs") as threads:
            found = zip(keys, threads.map(self._size, keys), strict=True)
            return {key: size for key, size in found if size is not None}

    def read(self, key: BlobKey) -> bytes | None:
        """Return all of it."""
        try:
            with _told():
                answer = self._client.get_object(Bucket=self._bucket, Key=key.path)
                return bytes(answer["Body"].read())
        except _Absent:
            return None

    def write(self, key: BlobKey, body: bytes) -> None:
        """Put it, with the checksum that the bucket compares."""
        checksum = base64.b64encode(bytes.fromhex(key.sha256)).decode()
        with _told():
            self._client.put_object(
                Bucket=self._bucket, Key=key.path, Body=body, ChecksumSHA256=checksum
            )

    def delete(self, keys: Sequence[BlobKey]) -> None:
        """Remove them, many at a time."""
        for start in range(0, len(keys), DELETED_AT_ONCE):
            some = [{"Key": key.path} for key in keys[start : start + DELETED_AT_ONCE]]
            with _told():
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": some, "Quiet": True},
                )
            if answer.get("Errors"):
                raise StorageAway()

    def sweep(self, *, older_than_seconds: float) -> int:
        """Find nothing: an upload that is broken off leaves nothing in a bucket."""
        return 0

    def _size(self, key: BlobKey) -> int | None:
        try:
            with _told():
                answer = self._client.head_object(Bucket=self._bucket, Key=key.path)
                return int(answer["ContentLength"])
        except _Absent:
            return None


class _Absent(Exception):
    """The bucket has no such blob."""


@contextmanager
def _told() -> Iterator[None]:
    """Say what an error of S3 means for us: it is not there, or we have no answer."""
    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in ABSENT:
            raise _Absent() from None
        log.warning("storage.refuses", error=str(error))
        raise StorageAway() from error
    except BotoCoreError as error:
        log.warning("storage.away", error=str(error))
        raise StorageAway() from error
