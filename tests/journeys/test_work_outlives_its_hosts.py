"""Hosts leave in every way, side by side: all work goes on elsewhere, and is billed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.departures.plan import HOSTS
from tests.departures.records import Record, Records
from tests.departures.running import Run, Stop, go_on
from tests.departures.work import CHECKPOINT_SECONDS, KINDS, REASONS

pytestmark = pytest.mark.xdist_group("journeys-postgres")


def test_work_goes_on_elsewhere_whatever_takes_its_host_away(tmp_path: Path) -> None:
    # Of each host one GPU first, then all of it: so each of the six kinds comes once.
    run = Run("six", 2 * HOSTS, of_gpus=1, run_seconds=(10.0, 15.0))
    records = Records(tmp_path / "departures.jsonl")

    go_on(run, records, stop=Stop())

    found = records.departures()
    assert sorted(each.kind for each in found) == sorted(KINDS)
    for each in found:
        _holds(each)
    (audit,) = records.audits()
    assert audit.wrong == () and audit.leases == 4 * HOSTS


@pytest.mark.soak
def test_what_holds_of_six_holds_of_many(tmp_path: Path) -> None:
    records = Records(tmp_path / "departures.jsonl")

    go_on(Run("many", 30), records, stop=Stop())

    found = records.departures()
    assert len(found) == 30
    for each in found:
        _holds(each)
    assert sum(each.lost for each in found) <= 0.34 * sum(each.done for each in found)
    assert [each.wrong for each in records.audits()] == [()]


def _holds(each: Record) -> None:
    assert each.trouble == "", each
    assert each.reason == REASONS[each.kind], each
    assert each.is_in_time and each.is_elsewhere, each
    assert each.is_free_in_time is not False, each
    assert each.free_at is not None, each
    assert each.twice_ms == each.unbilled_ms == 0, each
    assert each.is_charged_right, each
    assert each.lost < each.done, each
    if each.kind == "notice":
        assert each.lost < CHECKPOINT_SECONDS, each
