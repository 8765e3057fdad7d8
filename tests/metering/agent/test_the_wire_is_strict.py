"""What the contract does not allow is refused with its place; the rest comes back the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.agent import wire
from tests.metering.agent.conftest import NOON_MS
from tests.metering.agent.market import assignment

BOOT = "6f1c2f6e-7d2b-4a53-9a55-0c7f3a6f9a10"
LEASE = "0b0e7b7c-33f0-4d0a-8a42-4b5b8b0e1c11"
INTERVAL: dict[str, Any] = {
    "seq": 1,
    "lease_id": LEASE,
    "gpu_uuid": "GPU-a",
    "start_ms": NOON_MS,
    "end_ms": NOON_MS + 1000,
    "granted_ms": 1000,
    "occupied_ms": None,
    "busy_ms": 999,
    "memory_used_mib": 0,
}
BATCH: dict[str, Any] = {
    "boot_id": BOOT,
    "batch": [INTERVAL],
    "health": [
        {
            "seq": 2,
            "gpu_uuid": None,
            "kind": "driver-mismatch",
            "at": "2026-01-05T12:00:00.250Z",
            "detail": "",
        }
    ],
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**BATCH, "batch": [{**INTERVAL, **fields}]}


def test_a_message_comes_back_as_it_was() -> None:
    batch = wire.SampleBatch.from_json(BATCH)

    assert wire.SampleBatch.from_json(wire.parse(wire.dump(batch.to_json()))) == batch
    wanted = assignment("GPU-a", "GPU-b", now_ms=NOON_MS, environment={"A": "1"}, stop_in=60)
    assert wire.Assignment.from_json(wanted.to_json()) == wanted


@pytest.mark.parametrize(
    ("message", "place", "reason"),
    [
        (changed(end_ms=NOON_MS), "batch[0].end_ms", "after start_ms"),
        (changed(end_ms=NOON_MS - 5), "batch[0].end_ms", "after start_ms"),
        (changed(granted_ms=999), "batch[0].granted_ms", "end_ms - start_ms"),
        (changed(granted_ms=-1), "batch[0].granted_ms", "from 0"),
        (changed(occupied_ms=1001), "batch[0].occupied_ms", "not exceed"),
        (changed(busy_ms=1001), "batch[0].busy_ms", "not exceed"),
        (changed(busy_ms=float("nan")), "batch[0].busy_ms", "whole number"),
        (changed(busy_ms=1.0), "batch[0].busy_ms", "whole number"),
        (changed(busy_ms=True), "batch[0].busy_ms", "whole number"),
        (changed(start_ms=0), "batch[0].start_ms", "from 15778"),
        (changed(seq=0), "batch[0].seq", "from 1"),
        (changed(seq=2), "health", "again"),
        (changed(memory_used_mib=10**30), "batch[0].memory_used_mib", "from 0"),
        (changed(gpu_uuid=""), "batch[0].gpu_uuid", "length"),
        (changed(gpu_uuid="GPU\x00"), "batch[0].gpu_uuid", "not text"),
        (changed(lease_id="41"), "batch[0].lease_id", "UUID"),
        (changed(price=1), "batch[0].price", "not a known field"),
        ({**BATCH, "batch": [INTERVAL, INTERVAL]}, "batch", "order of seq"),
        ({**BATCH, "boot_id": None}, "boot_id", "UUID"),
        ({"boot_id": BOOT, "batch": []}, "health", "missing"),
        ([], "", "object"),
    ],
)
def test_a_sample_batch_that_does_not_fit_is_refused(
    message: object, place: str, reason: str
) -> None:
    with pytest.raises(wire.WireError) as refused:
        wire.SampleBatch.from_json(message)

    assert refused.value.place == place
    assert reason in refused.value.reason


@pytest.mark.parametrize("at", ["2026-01-05T12:00:00", "2026-01-05", "noon", "", 1767614400, None])
def test_a_time_without_its_zone_is_refused(at: object) -> None:
    report = {
        "report_id": BOOT,
        "lease_id": LEASE,
        "what": "started",
        "at": at,
        "exit_code": None,
        "detail": "",
    }

    with pytest.raises(wire.WireError) as refused:
        wire.ReportBatch.from_json({"boot_id": BOOT, "reports": [report]})

    assert refused.value.place == "reports[0].at"


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":1,"a":2}', "{", "Infinity", "[" * 100_000])
def test_text_that_is_not_plain_json_is_refused(text: str) -> None:
    with pytest.raises(wire.WireError):
        wire.parse(text)


def test_an_assignment_must_make_sense() -> None:
    good = assignment("GPU-a", now_ms=NOON_MS).to_json()

    bads: list[dict[str, Any]] = [
        {"ends_at": good["starts_at"]},
        {"gpu_uuids": []},
        {"gpu_uuids": ["GPU-a", "GPU-a"]},
        {"command": []},
        {"command": [""]},
        {"environment": {"A=B": "1"}},
        {"environment": {"A": 1}},
        {"phase": "pause"},
        {"runtime": "podman"},
        {"grace_seconds": -1},
    ]
    for bad in bads:
        with pytest.raises(wire.WireError):
            wire.Assignment.from_json({**good, **bad})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(INTERVAL)), value=JSON)
def test_whatever_stands_in_a_field_is_taken_or_refused(field: str, value: object) -> None:
    try:
        batch = wire.SampleBatch.from_json(changed(**{field: value}))
    except wire.WireError:
        return
    assert wire.SampleBatch.from_json(wire.parse(wire.dump(batch.to_json()))) == batch
