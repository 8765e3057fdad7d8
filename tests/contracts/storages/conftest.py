"""Each storage as clients meet it: by its links, over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from config.web.transfers import Transfers
from marketplace.storage.folder import FolderStorage
from marketplace.storage.port import BlobKey, Link, Storage
from marketplace.storage.s3 import S3Storage
from marketplace.storage.through import ThroughMarket
from tests.s3_teeth.server import SECRET, S3Teeth

Send = Callable[..., int]


@pytest.fixture(scope="module")
def teeth() -> Iterator[S3Teeth]:
    server = S3Teeth()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["folder", "s3", "s3 through the market"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "blobs")
    bucket = s3_of(request.getfixturevalue("teeth"))
    return bucket if request.param == "s3" else ThroughMarket(bucket)


def s3_of(teeth: S3Teeth) -> S3Storage:
    return S3Storage(
        teeth.bucket,
        region="us-east-1",
        endpoint_url=teeth.url,
        access_key_id=teeth.key_id,
        secret_access_key=SECRET,
        attempts_max=1,
    )


def key_of(data: bytes) -> BlobKey:
    return BlobKey(uuid4(), hashlib.sha256(data).hexdigest())


def put(storage: Storage, link: Link, data: bytes, headers: dict[str, str] | None = None) -> int:
    """Send a blob as a client does; return the status."""
    said = dict(link.headers) if headers is None else headers
    return ask(storage, "PUT", link, content=data, headers=said).status_code


def ask(storage: Storage, method: str, link: Link, **options: object) -> httpx.Response:
    """Use a link: a path is asked of the market, an address of where it leads."""
    if link.url.startswith("http"):
        return httpx.request(method, link.url, **options)  # type: ignore[arg-type]  # as given

    async def asked() -> httpx.Response:
        app = Transfers(nobody, storage=lambda: storage)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://market") as client:
            return await client.request(method, link.url, **options)  # type: ignore[arg-type]  # as given

    return asyncio.run(asked())


async def nobody(*_: object) -> None:
    raise AssertionError("it is for nobody else")
