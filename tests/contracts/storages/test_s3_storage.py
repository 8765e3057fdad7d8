"""S3: what its links hold a client to, and what it looks like when it is away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marketplace.storage.port import StorageAway
from marketplace.storage.s3 import S3Storage
from tests.contracts.storages.conftest import ask, key_of, put, s3_of
from tests.s3_teeth.server import S3Teeth

DATA = b"checkpoint " * 1_000
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
