"""What a run keeps and goes on from, and how it reckons."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from marketplace.sdk.client import Client
from tests.departures import spools
from tests.departures.ground import Ground
from tests.departures.plan import HOSTS, plan
from tests.departures.records import Audit, Billed, Record, Records
from tests.departures.running import Run
from tests.departures.settling import proved_of
from tests.departures.work import KINDS, OF_HOST

RECORD = Record(
    run="main",
    number=0,
    kind="silence",
    host="departs-1",
    placed_at=1_000.0,
    deadline=1_540.0,
    began_at=1_005.0,
    left_at=1_040.0,
    last_word_at=1_039.5,
    free_by=None,
    free_at=1_070.0,
    last_step_at=1_070.0,
    room=0.5,
    closed_at=1_060.5,
    reason=505,
    resumed_at=1_064.0,
    is_elsewhere=True,
    next_from=1_062.0,
    ends_by=1_330.0,
    links=1,
    done=55.0,
    lost=21.0,
    billed=(Billed("a", 55_000, 55_000, 1_500, 1_500), Billed("b", 1_000, 1_000, 30, 30)),
)
SPANS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 50)).map(lambda each: (each[0], sum(each)))
)


def test_a_plan_is_the_same_each_time_and_has_as_many_of_each_kind() -> None:
    stints = plan(count=200, seed=1)
    kinds = [each.kind for stint in stints for each in stint.departures]

    assert stints == plan(count=200, seed=1) != plan(count=200, seed=2)
    assert sorted(one.number for each in stints for one in each.departures) == list(range(200))
    assert {each.host for each in stints} == set(range(HOSTS))
    counts = {kind: kinds.count(kind) for kind in KINDS}
    for some in (KINDS[:3], OF_HOST):
        assert max(counts[kind] for kind in some) - min(counts[kind] for kind in some) <= 1


def test_of_each_stint_the_whole_host_leaves_last() -> None:
    for stint in plan(count=199, seed=3)[:-1]:
        assert [each.kind in OF_HOST for each in stint.departures] == [False, False, True]


def test_a_run_goes_on_with_what_is_not_recorded(tmp_path: Path) -> None:
    run, records = Run("main", 12), Records(tmp_path / "departures.jsonl")
    for number in (0, 1, 2, 4):
        records.keep(replace(RECORD, number=number))
    records.keep(replace(RECORD, run="other", number=5))

    left = run.left(Records(tmp_path / "departures.jsonl").departures("main"))

    numbers = [one.number for stint in left for one in stint.departures]
    assert numbers == [3, 5, *range(6, 12)]
    assert [each.host for each in left] == [1, 2, 0]


def test_a_line_that_a_kill_tore_is_dropped_and_its_departure_done_again(tmp_path: Path) -> None:
    path = tmp_path / "departures.jsonl"
    Records(path).keep(RECORD)
    whole = path.read_text()
    path.write_text(whole + whole[:40])

    records = Records(path)
    records.keep(Audit("main", 1, 2, ("something",)))

    assert records.departures() == [RECORD]
    assert records.audits() == [Audit("main", 1, 2, ("something",))]
    assert len(path.read_text().splitlines()) == 2


def test_a_departure_is_in_time_where_its_rest_fits_before_the_deadline() -> None:
    assert RECORD.is_in_time and RECORD.resumed_after == 24.0 and RECORD.since_last_word == 24.5
    assert not replace(RECORD, ends_by=1_541.0).is_in_time
    assert not replace(RECORD, resumed_at=None).is_in_time


def test_time_billed_twice_or_not_at_all_is_told_apart() -> None:
    bills = (Billed("a", 50_000, 50_007, 1, 1), Billed("b", 900, 800, 1, 1))

    found = replace(RECORD, billed=bills, shared_ms=5)

    assert (found.twice_ms, found.unbilled_ms) == (12, 100)
    assert RECORD.is_charged_right
    assert not replace(RECORD, billed=(replace(bills[0], due_nanos=2), bills[1])).is_charged_right
    assert not replace(RECORD, billed=bills[:1]).is_charged_right, "one was not looked at"


@given(spans=SPANS, last=st.integers(0, 250))
def test_spans_are_joined_and_cut_to_the_time_that_they_cover(
    spans: list[tuple[int, int]], last: int
) -> None:
    covered = {moment for start, end in spans for moment in range(start, end)}

    joined = spools.joined(spans)

    assert spools.length(joined) == len(covered)
    assert spools.length(spools.until(joined, last)) == len({e for e in covered if e < last})
    assert spools.shared(joined, joined) == len(covered)


def test_use_is_proved_up_to_when_the_right_ended_and_no_longer(tmp_path: Path) -> None:
    kept, told = spools.Spools(tmp_path / "kept"), datetime(1970, 1, 1, tzinfo=UTC)
    ground, api = cast(Ground, SimpleNamespace(spools=kept)), cast(Client, None)
    lease: dict[str, Any] = {"id": "a", "starts_at": str(told), "close_reason": {"code": 201}}
    lease |= {"ends_at": str(told + timedelta(seconds=60)), "stop_at": None}
    uses = {"a": {"GPU-1": [(0, 1_000), (1_000, 61_000)]}}
    try:
        whole = proved_of(ground, api, lease, uses)
        taken = lease | {"stop_at": str(told + timedelta(seconds=20))}
        cut = proved_of(ground, api, taken, uses)
    finally:
        kept.end()

    assert whole == {"GPU-1": [(0, 1_000), (1_000, 60_000)]}
    assert cut == {"GPU-1": [(0, 1_000), (1_000, 20_000)]}


def test_what_an_agent_drops_from_its_spool_is_still_known(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    kept = spools.Spools(tmp_path / "kept")
    kept.follow(folder)
    try:
        _append(folder / "1.log", _interval("a", 0, 1_000))
        assert kept.uses() == {"a": {"GPU-1": [(0, 1_000)]}}
        _append(folder / "1.log", _interval("a", 1_000, 2_000))
        _append(folder / "2.log", _interval("b", 5_000, 6_000), _said("xid", 7))
        _append(folder / "2.log", _said("diagnostic-passed", 3))
        assert kept.uses()["b"] == {"GPU-1": [(5_000, 6_000)]}
        (folder / "1.log").unlink()

        assert kept.uses()["a"] == {"GPU-1": [(0, 2_000)]}
        assert kept.fault_of("GPU-1", since=0) == 7_000
        assert kept.fault_of("GPU-1", since=7_001) is None
    finally:
        kept.end()


def _interval(lease_id: str, start: int, end: int) -> dict[str, object]:
    use = {"lease_id": lease_id, "gpu_uuid": "GPU-1", "start_ms": start, "end_ms": end}
    return {"t": "interval", "body": use}


def _said(kind: str, second: int) -> dict[str, object]:
    at = f"1970-01-01T00:00:{second:02}+00:00"
    return {"t": "health", "body": {"gpu_uuid": "GPU-1", "kind": kind, "at": at}}


def _append(path: Path, *records: dict[str, object]) -> None:
    with path.open("a") as file:
        file.write(f"00000000 {json.dumps(records)}\n")
