"""What is done by a shorter way than the library's own comes to the same."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, models

from config.wiring import projections
from ledger.domain.ids import of_bytes
from ledger.eventstore.arrays import bigints, blobs, ints, let_send, texts, uuids
from ledger.models import HoldRow
from ledger.rows import made

IDS = [uuid4(), UUID(int=0), UUID(int=2**128 - 1)]
ROWS = sorted(
    {table for projection in projections() for table in projection.tables}, key=lambda t: t.__name__
)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "pack", "values"),
    [
        pytest.param("uuid[]", uuids, IDS, id="uuids"),
        pytest.param(
            "text[]", texts, ["", "Zürich", 'a "quoted" {one}', "NULL", "a,b\\"], id="texts"
        ),
        pytest.param("bytea[]", blobs, [b"", b"\0\xff", b"{}"], id="bytes"),
        pytest.param("int[]", ints, [0, -1, 2**31 - 1, -(2**31)], id="ints"),
        pytest.param("bigint[]", bigints, [0, -1, 2**63 - 1, -(2**63)], id="bigints"),
    ],
)
def test_an_array_arrives_as_it_was_packed(kind: str, pack: object, values: list[object]) -> None:
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:
        let_send(cursor)
        for sent in (values, values[:1], []):
            cursor.execute(f"SELECT %s::{kind}", [pack(sent)])  # type: ignore[operator]
            assert cursor.fetchone() == (sent,)


def test_an_id_is_read_from_its_bytes() -> None:
    for each in IDS:
        assert of_bytes(each.bytes) == each
        assert hash(of_bytes(each.bytes)) == hash(each)
        assert str(of_bytes(each.bytes)) == str(each)


@pytest.mark.parametrize("kind", ROWS, ids=[kind.__name__ for kind in ROWS])
def test_a_row_of_which_nothing_is_said_is_as_the_model_makes_it(kind: type[models.Model]) -> None:
    names = [field.attname for field in kind._meta.local_concrete_fields]
    ours, djangos = made(kind), kind()

    assert [getattr(ours, name) for name in names] == [getattr(djangos, name) for name in names]
    assert ours._state.adding


def test_a_row_has_what_was_said_of_it() -> None:
    hold_id, at = uuid4(), datetime(2026, 1, 5, tzinfo=UTC)

    row = made(HoldRow, hold_id=hold_id, money_nanos=5, placed_at=at)

    assert (row.pk, row.money_nanos, row.placed_at) == (hold_id, 5, at)
    with pytest.raises(AssertionError, match="HoldRow has no"):
        made(HoldRow, hold_idd=hold_id)
