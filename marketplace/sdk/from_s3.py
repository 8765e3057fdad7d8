"""Objects of a bucket as a folder to send: fetched here, with this person's own keys.

boto3 finds the keys and the endpoint, as it does for other programs (`AWS_PROFILE`,
`AWS_ENDPOINT_URL_S3` …). Neither comes to the market or to a host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .from_git import BYTES_MAX, FILES_MAX, SAID_LENGTH_MAX, Fetched, is_safe
from .problems import Problem
from .spoken import NotUnderstood

PREFIX = "s3://"
THREADS = 8
COPIED_BYTES = 1 << 20

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bucket, and the beginning of the keys that are asked for; empty for all."""

    bucket: str
    prefix: str

    @property
    def origin(self) -> str:
        """Return it as it was said."""
        return f"{PREFIX}{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class _Found:
    """An object as it was listed. path: where it comes to lie."""

    key: str
    size: int
    etag: str
    path: str


def read(said: str) -> Wanted:
    """Read `s3://bucket/prefix`, which names one object or all below a folder.

    Raises: NotUnderstood.
    """
    bucket, _, prefix = said.removeprefix(PREFIX).partition("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise NotUnderstood(f"{bucket[:80]!r} is no bucket: write s3://bucket/prefix.")
    return Wanted(bucket, prefix.rstrip("/"))


def fetch(wanted: Wanted, into: Path) -> Fetched:
    """Fetch what is below a prefix into `into`, an empty folder; return what came.

    An object that is written meanwhile ends it: nothing is half old and half new. Raises: Problem.
    """
    with closing(_client()) as client:
        return _fetch(client, wanted, into)


def _fetch(client: Any, wanted: Wanted, into: Path) -> Fetched:
    with _told(wanted):
        found = list(_listed(client, wanted))
    if not found:
        raise _failed("folder-unknown", f"There is nothing at {wanted.origin}.")
    if len(found) > FILES_MAX or sum(each.size for each in found) > BYTES_MAX:
        raise _failed("folder-too-large", f"{wanted.origin} has {len(found)} objects: too much.")
    root = into / "folder"
    root.mkdir()
    with _told(wanted), ThreadPoolExecutor(THREADS) as threads:
        done = [threads.submit(_take, client, wanted, each, root) for each in found]
        try:
            for each in done:
                each.result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return Fetched(root, wanted.origin)


def _client() -> Any:
    try:
        import boto3
    except ImportError:
        detail = "S3 is spoken by boto3, which is not installed here: pip install 'offpeak[s3]'."
        raise _failed("boto3-missing", detail) from None
    return boto3.client("s3")


def _listed(client: Any, wanted: Wanted) -> Iterator[_Found]:
    """Yield the objects: the one of this very key, or those below it as a folder."""
    below = f"{wanted.prefix}/" if wanted.prefix else ""
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=wanted.bucket, Prefix=wanted.prefix
    )
    for page in pages:
        for each in page.get("Contents", ()):
            key, size = str(each["Key"]), int(each["Size"])
            if key == wanted.prefix:
                path = key.rpartition("/")[2]
            elif key.startswith(below) and not key.endswith("/"):
                path = key[len(below) :]
            else:
                continue  # a sibling whose name begins alike, or what stands for a folder
            if not is_safe(path):
                raise _failed("path-unsafe", f"An object's key can be no path: {key[:200]!r}.")
            yield _Found(key, size, str(each["ETag"]), path)


def _take(client: Any, wanted: Wanted, each: _Found, root: Path) -> None:
    place = root / each.path
    place.parent.mkdir(parents=True, exist_ok=True)
    answer = client.get_object(Bucket=wanted.bucket, Key=each.key, IfMatch=each.etag)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    came = 0
    with closing(answer["Body"]), os.fdopen(os.open(place, flags, 0o644), "wb") as file:
        for data in answer["Body"].iter_chunks(COPIED_BYTES):
            came += len(data)
            file.write(data)
    if came != each.size:
        raise _failed("object-changed", f"{each.key} has {came} bytes, not {each.size} as listed.")


@contextmanager
def _told(wanted: Wanted) -> Iterator[None]:
    """Say what went wrong in words of ours, without the keys that were used."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        code = str(said.get("Code", ""))
        if code in ("PreconditionFailed", "412"):
            detail = f"An object of {wanted.origin} changed while it was read: ask again."
            raise _failed("object-changed", detail) from None
        text = f"{code}: {said.get('Message', '')}"[:SAID_LENGTH_MAX]
        raise _failed("storage-refused", f"{wanted.origin} cannot be read: {text}.") from None
    except BotoCoreError as error:
        text = str(error)[:SAID_LENGTH_MAX]
        raise _failed("storage-away", f"{wanted.origin} cannot be read: {text}") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        detail = "Two objects would have one path: a key is a file, and a folder of another."
        raise _failed("path-unsafe", detail) from None


def _failed(code: str, detail: str) -> Problem:
    return Problem(422, {"code": code, "detail": detail})
