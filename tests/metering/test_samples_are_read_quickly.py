"""The quick reader of samples says what the careful one says, or leaves it to that one."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from metering.agent.strict import WireError
from metering.agent.wire import Health, SampleBatch, parse
from metering.ingest.rows import FIELDS, read_quickly, rows_of
from metering.models import Interval
from tests.conftest import NOON
from tests.metering.world import BOOT, interval

ODD: tuple[Any, ...] = (
    None,
    -1,
    0,
    1.0,
    2**53 + 1,
    True,
    "",
    "x" * 201,
    "a\x00b",
    "ü",
    "\ud800",
    [],
    str(UUID(int=7)),
    UUID(int=7).hex,
)


def body(**fields: Any) -> dict[str, Any]:
    message = SampleBatch(
        boot_id=BOOT,
        batch=(interval(1, 0, 1), interval(3, 1, 2, "GPU-b", busy_ms=None)),
        health=(Health(seq=2, gpu_uuid=None, kind="xid", at=NOON, detail="79"),),
    )
    return message.to_json() | fields


def careful(data: bytes) -> Any:
    try:
        batch = SampleBatch.from_json(parse(data))
    except WireError:
        return None
    return batch.boot_id, rows_of(batch.batch), batch.health


def test_a_batch_is_read_as_the_careful_reader_reads_it() -> None:
    data = json.dumps(body()).encode()

    assert read_quickly(data) == careful(data) is not None


def test_what_is_stored_of_an_interval_has_a_column() -> None:
    assert set(FIELDS) < {field.column for field in Interval._meta.local_concrete_fields}


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Return a batch in which something is off, or not."""
    message = body()
    part = draw(st.sampled_from([message, *message["batch"], *message["health"]]))
    name = draw(st.sampled_from([*part, "colour"]))
    if draw(st.booleans()) and name in part:
        del part[name]
    else:
        part[name] = draw(st.sampled_from(ODD) | st.integers(-5, 2**54))
    return json.dumps(message).encode()


@given(spoiled())
def test_whatever_is_off_is_left_to_the_careful_reader(data: bytes) -> None:
    quick = read_quickly(data)

    assert quick is None or quick == careful(data)


def test_what_is_no_batch_is_left_to_the_careful_reader() -> None:
    for data in (b"", b"[]", b"{", b'{"boot_id": 1}', b"\xff"):
        assert read_quickly(data) is None
