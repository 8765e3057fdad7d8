"""How often what running work saved in a volume becomes a version of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import UUID

from metering.agent import wire
from metering.agent.files.checkpoint_versions import CheckpointVersions
from metering.agent.files.ways import Way
from metering.agent.reconcile import Terms
from metering.agent.runtimes.port import Work
from metering.agent.state import LeaseState
from tests.metering.agent.market import assignment

MOUNT = wire.VolumeMount(name="data", path="volumes/data", writable=True)


class Sending:
    """A lease with a volume, whose sending takes so many seconds and ends like this.

    reads: for how many of them it reads files; None: nobody says.
    """

    def __init__(
        self,
        *mounts: wire.VolumeMount,
        seconds: int = 0,
        reads: int | None = None,
        how: str = "kept",
    ) -> None:
        self.versions, self.seconds, self.how = CheckpointVersions(), seconds, how
        self.reads = reads
        self.begun: list[int] = []
        self.quiet: list[bool] = []
        self.way, self.over, self.now = Way(), threading.Event(), 0
        asked = replace(assignment("GPU-1", now_ms=0), volumes=mounts or (MOUNT,))
        self.lease = LeaseState(Terms.of(asked))
        self.work = Work(
            lease_id=asked.lease_id, gpu_uuids=("GPU-1",), state="running", started_ms=0
        )

    def begin(self, _lease: UUID, _mount: wire.VolumeMount, way: Way, quiet: bool) -> bool:
        self.begun.append(self.now)
        self.quiet.append(quiet)
        self.way, self.over = way, threading.Event()
        over, how = self.over, self.how
        way.begin(lambda: how if over.wait(60) else "too late", "test")
        return True

    def end(self) -> None:
        """Have what is on its way be there."""
        self.over.set()
        assert self.way.thread is not None
        self.way.thread.join()
        self.way.read_ms = None if self.reads is None else 1_000 * self.reads

    def run(self, seconds: int, *, saved_every: int = 1) -> list[int]:
        """Turn once in each second; return in which of them a version was begun."""
        for now in range(self.now, self.now + seconds):
            self.now = now
            if self.begun and self.now >= self.begun[-1] + self.seconds:
                self.end()
            saved = replace(self.work, saved_ms=1_000 * (self.now - self.now % saved_every))
            self.versions.turn(saved, self.lease, now_ms=self.now * 1_000, begin=self.begin)
        self.now = now + 1
        return self.begun

    @property
    def kept_ms(self) -> int | None:
        return self.versions.kept_ms(replace(self.work, saved_ms=7), self.lease)


def test_work_that_saves_itself_all_the_time_makes_a_version_a_minute() -> None:
    sending = Sending()

    assert sending.run(245) == [0, 60, 120, 180, 240]
    assert sending.kept_ms == 240_000


def test_a_host_may_keep_checkpoints_more_often() -> None:
    sending = Sending()
    sending.versions = CheckpointVersions(20_000)

    assert sending.run(65) == [0, 20, 40, 60]


def test_a_version_that_takes_long_has_a_long_pause_after_it() -> None:
    """All files of the volume are read for each."""
    sending = Sending(seconds=30)

    assert sending.run(400) == [0, 330]


def test_a_market_that_answers_late_is_no_reason_for_a_long_pause() -> None:
    assert Sending(seconds=40, reads=1).run(250) == [0, 80, 160, 240]


def test_files_are_read_for_a_tenth_of_the_time_at_most() -> None:
    assert Sending(seconds=40, reads=20).run(500) == [0, 240, 480]


def test_a_checkpoint_is_sent_once() -> None:
    assert Sending().run(1_000, saved_every=500) == [0, 500]


def test_one_that_failed_is_tried_again_and_complained_of_once() -> None:
    sending = Sending(how="lost")

    assert sending.run(125, saved_every=500) == [0, 60, 120]
    assert sending.quiet == [False, True, True]
    assert sending.kept_ms is None

    sending.how = "kept"
    sending.run(400, saved_every=500)

    assert sending.begun == [0, 60, 120, 180, 500]
    assert sending.kept_ms == 500_000


def test_work_that_says_nothing_makes_no_version() -> None:
    sending = Sending()

    sending.versions.turn(sending.work, sending.lease, now_ms=0, begin=sending.begin)

    assert sending.begun == []


def test_of_work_that_writes_to_no_volume_it_counts_what_it_says() -> None:
    sending = Sending(replace(MOUNT, writable=False))

    assert sending.run(100) == []
    assert sending.kept_ms == 7


def test_of_several_volumes_the_one_counts_that_is_least_far() -> None:
    sending = Sending(MOUNT, replace(MOUNT, name="more", path="volumes/more"))
    sending.run(1)
    sending.end()
    sending.run(1)

    assert len(sending.begun) == 2
    assert sending.kept_ms is None


def test_a_version_on_its_way_is_stopped_and_waited_for_before_the_last() -> None:
    sending = Sending(seconds=1_000)
    sending.run(1)
    which = (sending.work.lease_id, "data")

    assert not sending.versions.stop(which)
    assert sending.way.stop.is_set()
    sending.end()
    assert sending.versions.stop(which)
    sending.versions.drop(sending.work.lease_id)
    assert sending.versions.stop(which)
