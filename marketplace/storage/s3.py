"""Blobs in a bucket of Amazon S3, or of whatever speaks its API, by presigned links.

The length and the checksum are signed into a link, so that the storage itself refuses other bytes.
Links are made here and not by clients: some SDKs sign the checksum into the query, where S3 does
not look at it.

For clients that cannot reach the bucket, blobs pass through here: on their way in by a file without
a name, since they are named, and so checked, before a byte of them goes on.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any, BinaryIO

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from marketplace.storage.port import (
    LINK_SECONDS,
    BlobKey,
    BlobLengthWrong,
    BlobNotItsName,
    Link,
    StorageAway,
)

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
        self._region, self._endpoint_url = region, endpoint_url
        self._client: Any = boto3.client(
            "s3",
            region_name=region,
            endpoint_url=endpoint_url,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            config=Config(
                **_speech(bucket, endpoint_url),
                connect_timeout=TIMEOUT_SECONDS,
                read_timeout=TIMEOUT_SECONDS,
                max_pool_connections=ASKED_AT_ONCE,
                retries={"total_max_attempts": attempts_max, "mode": "standard"},
            ),
        )

    @cached_property
    def elsewhere(self) -> tuple[str, ...]:
        """Return where the bucket is, as its links say it. Asks nobody for keys."""
        client: Any = boto3.client(
            "s3",
            region_name=self._region,
            endpoint_url=self._endpoint_url,
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=Config(**_speech(self._bucket, self._endpoint_url)),
        )
        said = {"Bucket": self._bucket, "Key": "x"}
        url: str = client.generate_presigned_url("get_object", said)
        return (url.partition("?")[0].removesuffix("x"),)

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

    def open(self, key: BlobKey) -> OpenObject | None:
        """Begin to read it."""
        try:
            with _told():
                return OpenObject(self._client.get_object(Bucket=self._bucket, Key=key.path))
        except _Absent:
            return None

    def receive(self, key: BlobKey, size: int) -> Receiving:
        """Begin to gather it in a file that has no name."""
        return Receiving(self, key, size)

    def write(self, key: BlobKey, body: bytes | BinaryIO) -> None:
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


class OpenObject:
    """A blob in a bucket, as its answer comes."""

    def __init__(self, answer: Any) -> None:
        self._body = answer["Body"]
        self.size = int(answer["ContentLength"])

    def read(self, count: int, /) -> bytes:
        """Return more of it. Raises: OSError."""
        try:
            return bytes(self._body.read(count))
        except (BotoCoreError, HTTPError) as lost:
            raise OSError(str(lost)) from lost

    def close(self) -> None:
        """Let go of it: what was not read is not waited for."""
        self._body.close()


class Receiving:
    """A blob on its way into a bucket: gathered and hashed, and put when all of it is right.

    Each step by whatever thread, one after the other.
    """

    def __init__(self, storage: S3Storage, key: BlobKey, size: int) -> None:
        self._storage, self._key, self._size = storage, key, size
        self._digest, self._taken, self._alone = hashlib.sha256(), 0, Lock()
        with _gathered():
            self._draft: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes it

    def write(self, data: bytes, /) -> None:
        """Take more of it."""
        with self._alone, _gathered():
            self._taken += len(data)
            if self._taken > self._size:
                raise BlobLengthWrong(bytes_wanted=self._size)
            self._digest.update(data)
            if not self._draft.closed:
                self._draft.write(data)

    def finish(self) -> None:
        """Put it into the bucket, if it is what its name says."""
        if self._taken != self._size:
            raise BlobLengthWrong(bytes=self._taken, bytes_wanted=self._size)
        if self._digest.hexdigest() != self._key.sha256:
            raise BlobNotItsName()
        with self._alone, _gathered():
            self._draft.seek(0)
            self._storage.write(self._key, self._draft)

    def end(self) -> None:
        """Let go of the file, and so of what it has."""
        with self._alone:
            self._draft.close()


def _speech(bucket: str, endpoint_url: str | None) -> dict[str, Any]:
    """Return how a bucket is addressed and requests are signed, for all who make links to it.

    By its own name in its own region: from the address for all regions a link would be led on to
    another, for which it is not signed. A name with dots fits no certificate.
    """
    style = "path" if endpoint_url or "." in bucket else "virtual"
    return {"signature_version": "s3v4", "s3": {"addressing_style": style}}


@contextmanager
def _gathered() -> Iterator[None]:
    """Say what an error of this machine's disk means for whoever sends: come again."""
    try:
        yield
    except OSError as error:
        log.warning("storage.cannot-gather", error=str(error))
        raise StorageAway() from error


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
