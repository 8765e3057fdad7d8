"""S3: what its links hold a client to, and what it looks like when it is away."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest

from config.web.transfers import Transfers
from marketplace.storage.port import StorageAway
from marketplace.storage.s3 import S3Storage
from marketplace.storage.through import ThroughMarket
from tests.contracts.storages.conftest import ask, key_of, nobody, put, s3_of
from tests.s3_teeth.server import S3Teeth

DATA = b"checkpoint " * 1_000
LARGE = os.urandom(3_000_000)
AWAY = ["503 Slow Down"]


@pytest.fixture
def storage(teeth: S3Teeth) -> S3Storage:
    return s3_of(teeth)


def test_a_link_needs_the_header_with_the_checksum(storage: S3Storage) -> None:
    key = key_of(DATA)

    assert put(storage, storage.put_link(key, len(DATA)), DATA, headers={}) == 403
    assert storage.sizes([key]) == {}


def test_a_link_works_for_its_time_and_no_longer(teeth: S3Teeth, storage: S3Storage) -> None:
    key = key_of(DATA)
    put(storage, storage.put_link(key, len(DATA)), DATA)
    to_send, to_read = storage.put_link(key, len(DATA)), storage.get_link(key)
    teeth.later = timedelta(seconds=901)

    try:
        assert put(storage, to_send, DATA) == 403
        assert ask(storage, "GET", to_read).status_code == 403
    finally:
        teeth.later = timedelta()


def test_bytes_go_straight_to_the_bucket(teeth: S3Teeth, storage: S3Storage) -> None:
    key = key_of(DATA)

    assert storage.put_link(key, len(DATA)).url.startswith(teeth.url)
    assert key.path in storage.get_link(key).url


def test_pages_may_send_to_the_bucket_and_to_nothing_beside_it(
    teeth: S3Teeth, storage: S3Storage
) -> None:
    assert storage.elsewhere == (f"{teeth.url}/{teeth.bucket}/",)
    assert ThroughMarket(storage).elsewhere == ()
    of_amazon = S3Storage("lab-data", region="eu-central-1")
    assert of_amazon.elsewhere == ("https://lab-data.s3.eu-central-1.amazonaws.com/",)


@pytest.mark.parametrize("cut", [0, 1, 2**20, len(LARGE) - 1])
def test_of_an_upload_through_the_market_that_is_cut_nothing_comes_to_the_bucket(
    teeth: S3Teeth, storage: S3Storage, cut: int
) -> None:
    key = key_of(LARGE)
    link = ThroughMarket(storage).put_link(key, len(LARGE))
    came = iter(
        [
            {"type": "http.request", "body": LARGE[:cut], "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(came)

    async def send(message: Any) -> None:
        sent.append(message)

    length = (b"content-length", str(len(LARGE)).encode())
    scope = {"type": "http", "path": link.url, "method": "PUT", "headers": [length]}
    asyncio.run(Transfers(nobody, storage=lambda: storage)(scope, receive, send))

    assert (sent, storage.sizes([key])) == ([], {})


def test_a_bucket_that_is_away_is_said_to_whom_the_market_stands_between(
    teeth: S3Teeth, storage: S3Storage
) -> None:
    key = key_of(DATA)
    between = ThroughMarket(storage)
    teeth.trouble += AWAY

    refused = ask(storage, "PUT", between.put_link(key, len(DATA)), content=DATA)

    assert (refused.status_code, refused.json()["code"]) == (503, "storage-away")
    assert put(storage, between.put_link(key, len(DATA)), DATA) == 204
    teeth.trouble += AWAY
    assert ask(storage, "GET", between.get_link(key)).status_code == 503
    assert ask(storage, "GET", between.get_link(key)).content == DATA


def test_a_bucket_that_does_not_answer_is_away(teeth: S3Teeth, storage: S3Storage) -> None:
    key = key_of(DATA)
    for work in (
        lambda: storage.sizes([key]),
        lambda: storage.read(key),
        lambda: storage.delete([key]),
    ):
        teeth.trouble += AWAY
        with pytest.raises(StorageAway):
            work()
        teeth.trouble.clear()

    assert storage.read(key) is None
