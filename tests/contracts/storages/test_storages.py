"""What every storage of blobs keeps to, asked the way that clients ask."""

from __future__ import annotations

import re

import pytest

from marketplace.storage.port import BlobKey, Storage
from tests.contracts.storages.conftest import ask, key_of, put

DATA = b"weights " * 4_000
OTHER = b"WEIGHTS " * 4_000


def test_what_is_sent_is_there_and_can_be_read(storage: Storage) -> None:
    key = key_of(DATA)
    assert storage.sizes([key]) == {}

    assert put(storage, storage.put_link(key, len(DATA)), DATA) in (200, 204)

    assert storage.sizes([key]) == {key: len(DATA)}
    assert storage.read(key) == DATA
    assert ask(storage, "GET", storage.get_link(key)).content == DATA


def test_the_same_again_changes_nothing(storage: Storage) -> None:
    key = key_of(DATA)
    link = storage.put_link(key, len(DATA))

    assert put(storage, link, DATA) in (200, 204)
    assert put(storage, link, DATA) in (200, 204)

    assert storage.read(key) == DATA


def test_other_bytes_are_refused(storage: Storage) -> None:
    key = key_of(DATA)

    assert 400 <= put(storage, storage.put_link(key, len(DATA)), OTHER) < 500

    assert storage.sizes([key]) == {}


@pytest.mark.parametrize(
    "sent", [DATA[:-1], DATA + b"x", b"", DATA[:1]], ids=["short", "long", "none", "one"]
)
def test_fewer_or_more_bytes_are_refused(storage: Storage, sent: bytes) -> None:
    key = key_of(DATA)

    assert 400 <= put(storage, storage.put_link(key, len(DATA)), sent) < 500

    assert storage.sizes([key]) == {}


def test_a_link_that_was_changed_is_refused(storage: Storage) -> None:
    key = key_of(DATA)
    link = storage.put_link(key, len(DATA))
    changed = re.sub(r".$", lambda last: "0" if last[0] != "0" else "1", link.url)

    assert put(storage, type(link)(changed, link.headers), DATA) == 403

    assert storage.sizes([key]) == {}


def test_a_link_is_good_for_one_way_only(storage: Storage) -> None:
    key = key_of(DATA)
    to_send, to_read = storage.put_link(key, len(DATA)), storage.get_link(key)

    assert put(storage, type(to_read)(to_read.url, to_send.headers), DATA) == 403
    assert put(storage, to_send, DATA) in (200, 204)
    assert ask(storage, "GET", to_send).status_code == 403


def test_what_one_organisation_has_another_has_not(storage: Storage) -> None:
    ours = key_of(DATA)
    put(storage, storage.put_link(ours, len(DATA)), DATA)
    theirs = BlobKey(key_of(OTHER).tenant_id, ours.sha256)

    assert storage.sizes([theirs]) == {}
    assert storage.read(theirs) is None
    assert ask(storage, "GET", storage.get_link(theirs)).status_code == 404


def test_what_is_deleted_is_gone_and_may_be_deleted_again(storage: Storage) -> None:
    keys = [key_of(DATA), key_of(OTHER)]
    put(storage, storage.put_link(keys[0], len(DATA)), DATA)

    storage.delete(keys)
    storage.delete(keys)

    assert storage.sizes(keys) == {}
    assert ask(storage, "GET", storage.get_link(keys[0])).status_code == 404


def test_what_the_server_writes_itself_is_there(storage: Storage) -> None:
    key = key_of(DATA)

    storage.write(key, DATA)
    storage.write(key, DATA)

    assert storage.sizes([key]) == {key: len(DATA)}
    assert storage.read(key) == DATA
