"""Old stores stay readable: every event type, in every version, as it was first written."""

from __future__ import annotations

import json

import pytest

import config.wiring  # noqa: F401  # imports every app, so that every event type is registered
from ledger.eventstore import codec
from tests.contracts.stored import GOLDEN, own_types

RECORDS = {
    (name, int(version)): fields
    for name, versions in json.loads(GOLDEN.read_text()).items()
    for version, fields in versions.items()
}


def test_every_event_type_and_version_has_a_golden_record() -> None:
    wanted = {
        (name, version)
        for name, kind in own_types().items()
        for version in range(1, kind.schema_version + 1)
    }
    assert wanted == set(RECORDS), "python -m tests.contracts.stored adds what is missing"


def test_every_old_version_has_an_upcaster() -> None:
    assert codec.missing_upcasters() == []


@pytest.mark.parametrize(("name", "version"), sorted(RECORDS))
def test_a_golden_record_is_still_read(name: str, version: int) -> None:
    fields = RECORDS[name, version]
    event = codec.decode(name, version, json.dumps(fields).encode())
    assert type(event).name == name
    if version == type(event).schema_version:
        assert json.loads(codec.encode(event)) == fields
