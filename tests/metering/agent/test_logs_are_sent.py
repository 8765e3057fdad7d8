"""What work prints reaches the server, nothing lost or doubled, before its end is told."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from metering.agent import wire
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes.output import Output, older, read_output
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.shipping import REPORT_WAITS_MS, Printing, Shipper
from metering.agent.uplink import HttpUplink, Refused, Unreachable
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import PYTHON, until


def everything(path: Path, offset: int = 0, most: int = 300) -> list[tuple[int, bytes]]:
    """Read a stream to its end, piece by piece."""
    pieces: list[tuple[int, bytes]] = []
    while True:
        start, data, _ = read_output(path, offset, most)
        if not data:
            return pieces
        pieces.append((start, data))
        offset = start + len(data)


def test_each_byte_keeps_its_offset_over_every_part(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    sent = b"".join(b"%05d\n" % number for number in range(550))
    with closing(Output(path, 4_096)) as output:
        for place in range(0, len(sent), 77):
            output.write(sent[place : place + 77])

    read = everything(path)

    assert len(older(path)) > 3
    assert b"".join(data for _, data in read) == sent
    assert all(sent[start:].startswith(data) for start, data in read)
    assert read_output(path, 1_234, 10)[:2] == (1_234, sent[1_234:1_244])


def test_head_and_tail_are_kept_and_the_middle_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    sent = os.urandom(50_000)
    with closing(Output(path, 4_096)) as output:
        output.write(sent)

    read = everything(path)

    kept = sum(len(data) for _, data in read)
    assert 3_000 <= kept <= 4_096
    assert read[0] == (0, sent[:300])
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) == kept
    assert b"".join(data for _, data in read).endswith(sent[-3_000:])
    gap = next(start for (start, _), (before, data) in zip(read[1:], read, strict=False)
               if start != before + len(data))  # fmt: skip
    assert gap > 512
    assert all(sent[start:].startswith(data) for start, data in read)


def test_what_a_full_disk_took_is_said_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stdout.log"
    output = Output(path, 1_000_000)
    output.write(b"before\n")
    whole = output._put_all
    monkeypatch.setattr(output, "_put_all", lambda data: 0)
    output.write(b"lost\n")
    output.write(b"too\n")
    monkeypatch.setattr(output, "_put_all", whole)
    output.write(b"after\n")
    output.close()

    assert (
        path.read_text()
        == "before\n\n[offpeak: 9 bytes were lost here: the disk was full]\nafter\n"
    )


class Server:
    """Takes logs as the server does, with faults that can be asked for."""

    def __init__(self) -> None:
        self.market = Market()
        self.messages: list[wire.LogBatch] = []
        self.fail: Exception | None = None
        self.lose_answer = False
        self.followed = True

    def ship(self, logs: wire.LogBatch) -> wire.LogsTaken:
        if self.fail is not None:
            raise self.fail
        self.messages.append(logs)
        taken = [self.market._take_log(each) for each in logs.pieces]
        if self.lose_answer:
            self.lose_answer = False
            raise Unreachable("the answer is lost")
        answer = [dataclasses.replace(each, followed=self.followed) for each in taken]
        return wire.LogsTaken(pieces=tuple(answer))


class Sending:
    """A shipper on a clock of the test, and one lease whose work prints."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 0
        self.server = Server()
        self.lease_id = uuid4()
        self.folder = folder / str(self.lease_id)
        self.folder.mkdir()
        self.stdout = Output(self.folder / "stdout.log", 8 * 65_536)
        self.begin()
        self.know(ended=False)

    def begin(self, **limits: int) -> None:
        uplink = self.server
        self.shipper = Shipper(uplink, now_ms=lambda: self.now_ms, **limits)  # type: ignore[arg-type]  # the one call it makes

    def know(self, *, ended: bool) -> None:
        self.shipper.know({self.lease_id: Printing(self.folder, ended=ended)})

    def turn(self, ms: int = 100) -> None:
        self.now_ms += ms
        self.shipper.turn()

    @property
    def there(self) -> bytes:
        return bytes(self.server.market.logs.get((self.lease_id, "stdout"), b""))


@pytest.fixture
def sending(tmp_path: Path) -> Iterator[Sending]:
    sending = Sending(tmp_path)
    yield sending
    sending.stdout.close()


def test_nothing_is_asked_where_nothing_was_printed(sending: Sending) -> None:
    for _ in range(20):
        sending.turn()

    assert sending.server.messages == []


def test_news_are_sent_once(sending: Sending) -> None:
    sending.stdout.write(b"one\n")
    sending.turn()
    sending.stdout.write(b"two\n")
    for _ in range(5):
        sending.turn()

    assert sending.there == b"one\ntwo\n"
    sizes = [len(each.content) for m in sending.server.messages for each in m.pieces]
    assert sum(sizes) == 8


def test_what_nobody_follows_is_looked_at_once_a_second(sending: Sending) -> None:
    sending.turn()
    fresh = sending.shipper.pause_ms()
    sending.turn(20_000)
    silent = sending.shipper.pause_ms()
    sending.server.followed = False
    sending.stdout.write(b"tick\n")
    for _ in range(11):
        sending.turn()
    unfollowed = sending.shipper.pause_ms()
    sending.server.followed = True
    sending.stdout.write(b"tock\n")
    for _ in range(11):
        sending.turn()

    assert (fresh, sending.shipper.pause_ms()) == (100, 100)
    assert silent > 500
    assert unfollowed > 500
    assert sending.there == b"tick\ntock\n"


def test_a_lease_that_begins_ends_a_pause(sending: Sending) -> None:
    stop = threading.Event()
    sending.know(ended=True)
    thread = threading.Thread(target=sending.shipper.run, args=[stop])
    thread.start()
    try:
        sending.shipper.know({})
        sending.know(ended=True)
        until(lambda: (sending.lease_id, "stdout") in sending.server.market.ended_logs)
    finally:
        stop.set()
        sending.shipper.wake()
        thread.join()


def test_an_unfollowed_log_is_sent_once_a_second(sending: Sending) -> None:
    sending.server.followed = False
    for _ in range(50):
        sending.stdout.write(b"tick\n")
        sending.turn()

    assert len(sending.server.messages) <= 8
    assert sending.there.startswith(b"tick\n" * 30)


def test_a_lost_answer_doubles_nothing(sending: Sending) -> None:
    sending.stdout.write(b"one\n")
    sending.turn()
    sending.server.lose_answer = True
    sending.stdout.write(b"two\n")
    sending.turn()
    sending.turn(60_000)

    assert sending.there == b"one\ntwo\n"


def test_an_agent_that_was_started_again_goes_on_where_the_server_is(sending: Sending) -> None:
    sending.stdout.write(b"one\n")
    sending.turn()
    sending.begin()
    sending.know(ended=False)
    sending.stdout.write(b"two\n")
    sending.turn()

    assert sending.there == b"one\ntwo\n"
    last = sending.server.messages[-1].pieces[-1]
    assert (last.offset, last.content) == (4, b"two\n")


def test_what_a_server_has_lost_is_sent_again(sending: Sending) -> None:
    sending.stdout.write(b"one\ntwo\n")
    sending.turn()
    del sending.server.market.logs[sending.lease_id, "stdout"][4:]
    sending.stdout.write(b"three\n")
    sending.turn()

    assert sending.there == b"one\ntwo\nthree\n"


def test_what_the_host_dropped_is_skipped_and_said_so(sending: Sending) -> None:
    sent = os.urandom(3_000_000)
    sending.stdout.write(sent)

    for _ in range(20):
        sending.turn()

    skipped = [p for m in sending.server.messages for p in m.pieces if p.skipped]
    assert len(sending.there) == len(sent)
    assert len(skipped) == 1
    assert sending.there.endswith(sent[-400_000:])
    assert sending.there.startswith(sent[:60_000])


def test_a_message_has_a_bound_and_leases_take_turns(sending: Sending, tmp_path: Path) -> None:
    other = Printing(tmp_path / "other", ended=False)
    other.folder.mkdir()
    for path in (other.folder / "stdout.log", sending.folder / "stderr.log"):
        with closing(Output(path, 10**7)) as loud:
            loud.write(b"x" * 1_000_000)
    both = {sending.lease_id: Printing(sending.folder, ended=False), uuid4(): other}
    sending.shipper.know(both)
    sending.turn()

    for message in sending.server.messages:
        sizes = [len(each.content) for each in message.pieces]
        assert sum(sizes) <= wire.LOG_BATCH_BYTES_MAX
    second = {each.lease_id for each in sending.server.messages[1].pieces}
    assert second == both.keys()


def test_a_lease_that_prints_too_much_is_read_slower(sending: Sending) -> None:
    sending.begin(bytes_per_second=1_000, burst_bytes=5_000)
    sending.know(ended=False)
    sending.stdout.write(b"x" * 20_000)
    sending.turn()
    assert len(sending.there) == 5_000

    for _ in range(10):
        sending.turn()

    assert len(sending.there) == 6_000


def test_the_end_is_told_after_the_rest_of_the_log(sending: Sending) -> None:
    stop = threading.Event()
    sending.stdout.write(b"the last line\n")
    sending.know(ended=True)
    sending.server.fail = Unreachable("away")
    thread = threading.Thread(target=sending.shipper.run, args=[stop])
    thread.start()
    try:
        until(lambda: sending.shipper.holds_back(sending.lease_id))
        assert sending.shipper.needs(sending.lease_id)

        sending.server.fail = None
        sending.now_ms += REPORT_WAITS_MS - 1
        sending.shipper.wake()

        until(lambda: not sending.shipper.needs(sending.lease_id))
        assert sending.there == b"the last line\n"
        ended = sending.server.market.ended_logs
        assert ended == {(sending.lease_id, "stdout"), (sending.lease_id, "stderr")}
    finally:
        stop.set()
        sending.shipper.wake()
        thread.join()


def test_the_end_does_not_wait_for_a_log_for_ever(sending: Sending) -> None:
    stop = threading.Event()
    sending.know(ended=True)
    sending.server.fail = Unreachable("away")
    thread = threading.Thread(target=sending.shipper.run, args=[stop])
    thread.start()
    try:
        until(lambda: sending.shipper.holds_back(sending.lease_id))
        sending.now_ms += REPORT_WAITS_MS

        assert not sending.shipper.holds_back(sending.lease_id)
    finally:
        stop.set()
        sending.shipper.wake()
        thread.join()


def test_a_server_of_before_is_left_alone_for_a_while(sending: Sending) -> None:
    sending.server.fail = Refused(404, "no such path")
    sending.stdout.write(b"one\n")
    sending.know(ended=True)
    sending.turn()
    sending.server.fail = None
    sending.turn(599_000)
    assert sending.server.messages == []
    assert not sending.shipper.needs(sending.lease_id)

    sending.turn(2_000)

    assert sending.there == b"one\n"


def test_a_lease_that_the_server_does_not_know_here_is_not_asked_about_again(
    sending: Sending,
) -> None:
    sending.stdout.write(b"one\n")
    sending.server.fail = Refused(409, "lease-not-here")
    sending.turn()
    sending.server.fail = None
    sending.turn(700_000)

    assert sending.server.messages == []


@contextmanager
def at_work(folder: Path, market: Market) -> Iterator[None]:
    """Run an agent with real work in a thread, until the end of the block."""
    clock = SystemClock()
    runtime = ProcessRuntime(folder, clock=clock)
    agent = Agent(
        AgentConfig(state_dir=folder, hostname="h1", tick_ms=50),
        gpus=SimulatedGpus(["H100"], clock=clock, holders=runtime.holders, seed="h1"),
        runtime=runtime,
        uplink=HttpUplink(market.url, TOKEN),
        clock=clock,
    )
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        agent.close()


def command(code: str) -> tuple[str, ...]:
    return PYTHON, "-c", code


def wanted(market: Market, code: str) -> UUID:
    uuid = market.registrations[-1].gpus[0].uuid
    return market.assign(assignment(uuid, now_ms=SystemClock().now_ms(), command=command(code)))


def test_real_work_is_read_to_its_last_line_before_its_end_is_told(
    tmp_path: Path, market: Market
) -> None:
    market.poll_seconds = 1
    with at_work(tmp_path, market):
        until(lambda: market.registrations)
        code = "import sys; print('out'); print('err', file=sys.stderr); print('last', end='')"
        lease = wanted(market, code)
        until(lambda: "exited" in [each.what for each in market.told(lease)])

        assert bytes(market.logs[lease, "stdout"]) == b"out\nlast"
        assert bytes(market.logs[lease, "stderr"]) == b"err\n"
        assert {stream for _, stream in market.ended_logs} == {"stdout", "stderr"}
