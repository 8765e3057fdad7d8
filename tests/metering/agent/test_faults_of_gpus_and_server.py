"""What goes wrong around the agent is told, costs measurements at most, and never granted time."""

from __future__ import annotations

import errno
import json
import os

import pytest

from metering.agent.spool import Spool
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.delivered import granted, sent
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc

SECOND = 1000


def test_a_lost_gpu_is_a_gap_in_its_own_figures_and_told_once(rig: Rig) -> None:
    assert rig.script is not None
    one = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "180")))
    two = rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, command=("sleep", "180")))
    rig.agent.run_once()
    for index, gpu in enumerate(("GPU-a", "GPU-b")):
        rig.script.proc(Proc(index, rig.pid(gpu), sm=50, start_ms=NOON_MS + SECOND))
    rig.steps(33)
    rig.script.say("err fn=* gpu=0 code=15")
    rig.steps(40)
    rig.script.unsay("err fn=* gpu=0 code=15")

    rig.steps(120)

    lost, whole = rig.market.intervals(one), rig.market.intervals(two)
    assert granted(lost) == granted(whole) == 180 * SECOND
    gap = [each for each in lost if each.occupied_ms is None]
    assert {each.busy_ms for each in gap} == {None}
    # The gap begins with the last good look, and lasts until one looks again after a pause.
    assert gap[0].start_ms == NOON_MS + 34 * SECOND
    assert NOON_MS + 73 * SECOND <= gap[-1].end_ms <= NOON_MS + (73 + 60) * SECOND
    measured = sum(each.occupied_ms or 0 for each in lost)
    assert measured == 179 * SECOND - granted(gap)
    assert sum(each.occupied_ms or 0 for each in whole) == 179 * SECOND
    assert None not in {each.occupied_ms for each in whole}
    kinds = [(each.kind, each.gpu_uuid) for each in rig.market.health()]
    assert kinds == [("gpu-lost", "GPU-a"), ("recovered", "GPU-a")]


def test_a_driver_updated_under_the_agent_is_told_once_for_all_gpus(rig: Rig) -> None:
    assert rig.script is not None
    leases = [
        rig.market.assign(assignment(gpu, now_ms=NOON_MS, command=("sleep", "120")))
        for gpu in ("GPU-a", "GPU-b")
    ]
    rig.steps(11)
    rig.script.say("err fn=* gpu=-1 code=18")
    rig.steps(10)
    rig.script.unsay("err fn=* gpu=-1 code=18")

    rig.steps(120)

    kinds = [(each.kind, each.gpu_uuid) for each in rig.market.health()]
    assert kinds == [("driver-mismatch", None), ("recovered", None)]
    for lease in leases:
        intervals = rig.market.intervals(lease)
        assert granted(intervals) == 120 * SECOND
        assert None in {each.occupied_ms for each in intervals}
        assert intervals[-1].occupied_ms == 0


def test_an_xid_is_told(rig: Rig) -> None:
    assert rig.script is not None
    rig.step()
    rig.script.say("event gpu=1 data=79 seq=1")

    rig.steps(3)

    (health,) = rig.market.health()
    assert (health.kind, health.gpu_uuid, health.detail) == ("xid", "GPU-b", "XID 79")


def test_a_gpu_without_a_lease_is_watched_too(rig: Rig) -> None:
    assert rig.script is not None
    rig.step()
    rig.script.say("err fn=* gpu=1 code=15")

    rig.steps(35)

    assert [(h.kind, h.gpu_uuid) for h in rig.market.health()] == [("gpu-lost", "GPU-b")]


def test_with_the_server_away_for_15_minutes_work_goes_on_and_nothing_is_lost(rig: Rig) -> None:
    assert rig.script is not None
    long = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=3600))
    ends = rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, seconds=600))
    rig.agent.run_once()
    rig.script.proc(Proc(0, rig.pid("GPU-a"), sm=40, start_ms=NOON_MS))
    rig.steps(20)
    rig.market.away = True
    rig.steps(15 * 60)
    running = {work.lease_id for work in rig.runtime.works() if work.state == "running"}
    assert running == {long}
    rig.market.away = False

    sent(rig)

    # It ended by itself, 2 s of grace before its known end, while nobody could be asked.
    assert granted(rig.market.intervals(ends)) == 598 * SECOND
    assert [r.what for r in rig.market.told(ends)] == ["started", "stopped"]
    intervals = rig.market.intervals(long)
    length_ms = intervals[-1].end_ms - NOON_MS
    assert granted(intervals) == length_ms >= 910 * SECOND
    assert sum(each.busy_ms or 0 for each in intervals) == length_ms * 40 // 100
    assert rig.market.repeated == 0


def test_a_line_that_is_away_for_two_days_costs_no_proof_of_what_ran(simulated_rig: Rig) -> None:
    """The market has given up both leases long before: the one that still runs ends at once.

    In between the agent is started again.
    """
    rig = simulated_rig
    one, two = rig.uuids()
    over = rig.market.assign(assignment(one, now_ms=NOON_MS, seconds=20 * 3600))
    runs = rig.market.assign(assignment(two, now_ms=NOON_MS, seconds=70 * 3600))
    rig.step()
    rig.market.away = True
    rig.steps(24 * 10, 360 * SECOND)
    rig.restart()
    rig.steps(24 * 10, 360 * SECOND)
    assert {w.lease_id for w in rig.runtime.works() if w.state == "running"} == {runs}
    rig.market.desired.clear()
    rig.market.away = False
    before_ms = rig.clock.now_ms()
    rig.steps(90)
    sent(rig, rounds=400)

    assert not [work for work in rig.runtime.works() if work.state == "running"]
    assert [r.what for r in rig.market.told(over)] == ["started", "stopped"]
    assert [r.what for r in rig.market.told(runs)] == ["started", "stopped"]
    assert 19 * 3600 * SECOND < granted(rig.market.intervals(over)) <= 20 * 3600 * SECOND
    intervals = rig.market.intervals(runs)
    ended_ms = intervals[-1].end_ms
    assert granted(intervals) == ended_ms - intervals[0].start_ms
    assert before_ms <= ended_ms <= before_ms + 120 * SECOND
    assert rig.market.repeated == 0


def test_the_agent_asks_ever_less_often_while_the_server_is_away(rig: Rig) -> None:
    rig.step()
    rig.market.away = True
    before = len(rig.market.requests)

    rig.steps(600)

    # The pauses double from 1 s to a minute: some 20 tries, not 600.
    assert len(rig.market.requests) - before < 40


def test_a_lost_reply_doubles_nothing(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "60")))
    for _ in range(15):
        rig.market.lose_replies = 1
        rig.steps(7)

    sent(rig)

    assert rig.market.repeated > 0
    assert granted(rig.market.intervals(lease)) == 60 * SECOND
    assert [report.what for report in rig.market.told(lease)] == ["started", "exited"]


def test_one_message_refused_for_good_does_not_hold_up_the_rest(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "100")))
    rig.market.poison = {4}

    rig.steps(300)

    sequence = sorted(seq for _, seq in rig.market.samples)
    assert sequence == [n for n in range(1, max(sequence) + 1) if n != 4]
    assert [report.what for report in rig.market.told(lease)] == ["started", "exited"]


PAGE = b"<html><title>Bad Request</title></html>"
PASSING = [
    (500, b'{"code": "unexpected"}'),
    (502, PAGE),
    (507, b'{"code": "store-full"}'),
    (429, b'{"code": "too-many-requests"}'),
    (409, b'{"code": "changed-meanwhile"}'),
    (409, b'{"code": "something-new"}'),
    (409, PAGE),
    (409, b'["report-conflict"]'),
    (409, b""),
    (400, PAGE),
    (413, PAGE),
    (410, b'{"code": "gone"}'),
    (301, b""),
    (451, PAGE),
]
FOR_GOOD = [
    (422, b'{"code": "message-unreadable"}'),
    (400, b'{"code": "bad-message"}'),
    (409, b'{"code": "report-conflict"}'),
    (409, b'{"code": "lease-not-here"}'),
]


@pytest.mark.parametrize("fault", PASSING)
def test_what_the_market_does_not_refuse_for_good_is_kept_and_sent_again(
    simulated_rig: Rig, fault: tuple[int, bytes]
) -> None:
    rig = simulated_rig
    gpu = rig.uuids()[0]
    lease = rig.market.assign(assignment(gpu, now_ms=NOON_MS, command=("sleep", "30")))
    rig.step()
    rig.market.fault = fault
    rig.steps(60, 5 * SECOND)
    rig.market.fault = None

    sent(rig)

    assert not (rig.state_dir / "refused.jsonl").exists()
    assert granted(rig.market.intervals(lease)) == 30 * SECOND
    assert [report.what for report in rig.market.told(lease)] == ["started", "exited"]


@pytest.mark.parametrize("fault", FOR_GOOD)
def test_what_the_market_refuses_for_good_is_set_aside_where_people_find_it(
    simulated_rig: Rig, fault: tuple[int, bytes]
) -> None:
    rig = simulated_rig
    gpu = rig.uuids()[0]
    rig.market.assign(assignment(gpu, now_ms=NOON_MS, command=("sleep", "1")))
    rig.step()
    rig.market.fault = fault
    rig.steps(5)

    aside = rig.state_dir / "refused.jsonl"

    assert fault[1].decode() in json.loads(aside.read_text().splitlines()[0])["refusal"]
    assert aside.stat().st_mode & 0o777 == 0o600


def test_a_server_that_refuses_everything_does_not_empty_the_spool(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "300")))
    rig.steps(5)
    rig.market.poison = set(range(1, 1000))
    rig.steps(400)
    aside = (rig.state_dir / "refused.jsonl").read_text().splitlines()
    rig.market.poison = set()

    sent(rig, 300)

    # At first, and after about one, two and four minutes; not all thirty intervals.
    assert 0 < len(aside) < 6
    assert len(rig.market.intervals(lease)) + len(aside) >= 30
    assert rig.market.told(lease)[-1].what == "exited"


def test_a_refused_registration_does_not_keep_the_agent_from_its_leases(rig: Rig) -> None:
    rig.market.refuse_registration = True
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "30")))

    rig.steps(200)

    assert granted(rig.market.intervals(lease)) == 30 * SECOND
    assert "400" in rig.agent.courier.trouble


def test_a_gpu_lost_for_hours_is_told_when_it_is_back(rig: Rig) -> None:
    assert rig.script is not None
    rig.step()
    rig.script.say("err fn=* gpu=1 code=15")
    rig.steps(100, 20_000)
    rig.script.unsay("err fn=* gpu=1 code=15")

    rig.steps(10, 20_000)

    assert [h.kind for h in rig.market.health()] == ["gpu-lost", "recovered"]
    assert [len(each.gpus) for each in rig.market.registrations] == [2, 1, 2]


def test_a_wrong_token_keeps_everything_until_it_is_right(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "60")))
    rig.steps(15)
    rig.market.token = "another"
    rig.steps(60)
    assert "401" in rig.agent.courier.trouble

    rig.market.token = "opa_test_token"
    sent(rig)

    assert granted(rig.market.intervals(lease)) == 60 * SECOND


class FillingDisk:
    """A disk that can be made full."""

    def __init__(self) -> None:
        self.full = False

    def write(self, file: int, data: bytes) -> int:
        if self.full:
            os.write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(file, data)


@pytest.mark.parametrize("restart", [False, True])
def test_a_full_disk_merges_intervals_and_loses_no_granted_time(rig: Rig, restart: bool) -> None:
    assert rig.script is not None
    disk = FillingDisk()
    rig.spool = lambda: Spool(rig.state_dir / "spool", write=disk.write)
    rig.restart()
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "200")))
    rig.agent.run_once()
    rig.script.proc(Proc(0, rig.pid("GPU-a"), sm=50, start_ms=NOON_MS + SECOND))
    rig.steps(25)
    disk.full = True
    rig.steps(60)
    if restart:
        rig.restart()
    rig.steps(60)
    disk.full = False

    rig.steps(80)
    sent(rig)

    intervals = rig.market.intervals(lease)
    assert granted(intervals) == 200 * SECOND
    if not restart:
        assert sum(each.occupied_ms or 0 for each in intervals) == 199 * SECOND
        assert sum(each.busy_ms or 0 for each in intervals) == 199 * SECOND // 2
    assert [report.what for report in rig.market.told(lease)] == ["started", "exited"]


def test_a_spool_at_its_bound_merges_intervals_and_still_ends_leases(rig: Rig) -> None:
    rig.spool = lambda: Spool(rig.state_dir / "spool", bytes_max=6_000, segment_bytes=2_000)
    rig.restart()
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "900")))
    rig.steps(5)
    rig.market.away = True
    rig.steps(1000)
    rig.market.away = False

    sent(rig)

    intervals = rig.market.intervals(lease)
    assert granted(intervals) == 900 * SECOND
    assert len(intervals) < 40
    assert [report.what for report in rig.market.told(lease)] == ["started", "exited"]


def test_without_a_disk_no_work_is_started(rig: Rig) -> None:
    disk = FillingDisk()
    disk.full = True
    rig.spool = lambda: Spool(rig.state_dir / "spool-2", write=disk.write)
    rig.restart()
    rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(10)
    assert list(rig.runtime.works()) == []
    disk.full = False
    rig.step()

    assert len(rig.runtime.works()) == 1


def test_without_a_driver_the_log_says_so_once_and_asks_ever_less_often(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    assert rig.script is not None
    rig.script.say("err fn=* gpu=-1 code=9")

    rig.steps(300)

    assert caplog.text.count("the GPUs cannot be listed") == 1
    rig.script.unsay("err fn=* gpu=-1 code=9")
    rig.steps(70)
    assert caplog.text.count("the GPUs can be listed again") == 1
    assert len(rig.market.registrations[-1].gpus) == 2
