"""The relay passes streams on, and whoever breaks its rules harms no stream but their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from config.web.relay import AGENT_GONE, BROKE_RULES, IDLE, Host, Relay, Stream
from metering.agent.access.frames import (
    CHUNK,
    CLOSE,
    CREDIT,
    DATA,
    END,
    HELLO,
    OPEN,
    OPENED,
    WINDOW,
    Frame,
    FrameWrong,
    closing,
    credit,
    frame,
)
from metering.domain.access import (
    STREAMS_OF_LEASE_MAX,
    HostNotConnected,
    Permit,
    PersonMayNoLonger,
    TooManyConnections,
)
from metering.ingest.tunnels import Agent

AGENT = Agent(UUID(int=1), UUID(int=2), UUID(int=3))
PERMIT = Permit(
    lease_id=UUID(int=10), host_id=AGENT.host_id, tenant_id=UUID(int=11), user_id=UUID(int=12),
    token_id=None, what="port", port=8888,
)  # fmt: skip
HALF = CHUNK // 2


class End:
    """An end of a socket that keeps what it was sent; with `reads` cleared it takes nothing."""

    def __init__(self) -> None:
        self.got: list[Frame] = []
        self.closed = False
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, message: bytes) -> None:
        await self.reads.wait()
        self.got.append(Frame.read(message))

    def close(self) -> None:
        self.closed = True

    def of(self, kind: int) -> list[Frame]:
        return [each for each in self.got if each.kind == kind]


class Setting:
    """A relay with one agent, on a clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.relay = Relay(clock=lambda: self.now)
        self.agent = End()
        self.host = self.host_of(self.agent)
        self.relay.add(self.host)
        self.deliveries: list[asyncio.Task[str]] = []

    def host_of(self, end: End) -> Host:
        return Host(AGENT, "shell", end.send, end.close)

    async def connect(self, permit: Permit = PERMIT) -> tuple[Stream, End]:
        client = End()
        stream = await self.relay.open(permit, client.send)
        self.deliveries.append(asyncio.create_task(stream.deliver()))
        return stream, client

    def say(self, kind: int, stream: Stream, payload: bytes = b"") -> None:
        self.relay.take(self.host, Frame(kind, stream.number, payload))


def relayed(story: Callable[[Setting], Awaitable[None]]) -> None:
    async def run() -> None:
        setting = Setting()
        try:
            await asyncio.wait_for(story(setting), 20)
        finally:
            for task in setting.deliveries:
                task.cancel()

    asyncio.run(run())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_is_said_reaches_the_other_end_and_is_paid_for_by_credit() -> None:
    async def story(on: Setting) -> None:
        stream, client = await on.connect()

        on.say(OPENED, stream, b"{}")
        on.say(DATA, stream, b"from the work")
        await on.relay.take_from_client(stream, Frame(DATA, 0, b"to the work"))
        on.say(CREDIT, stream, credit(0, 11)[5:])
        await settle()
        await on.relay.take_from_client(stream, Frame(CREDIT, 0, credit(0, 13)[5:]))
        on.say(END, stream)
        on.say(CLOSE, stream, b"it ended")
        await settle()

        assert [each.kind for each in on.agent.got] == [OPEN, DATA, CREDIT]
        assert {each.stream for each in on.agent.got} == {stream.number}
        assert sorted(each.kind for each in client.got) == [OPENED, DATA, END, CLOSE, CREDIT]
        assert client.of(DATA)[0].payload == b"from the work"
        assert client.got[-1].reason == "it ended"
        assert not on.host.streams

    relayed(story)


def test_a_client_that_reads_nothing_stops_its_own_stream_and_costs_one_window() -> None:
    async def story(on: Setting) -> None:
        slow, slow_client = await on.connect()
        quick, quick_client = await on.connect()
        slow_client.reads.clear()

        for _ in range(WINDOW // CHUNK):
            on.say(DATA, slow, bytes(CHUNK))
        on.say(DATA, quick, b"still here")
        await settle()
        assert quick_client.of(DATA)[0].payload == b"still here"
        assert slow.number in on.host.streams

        on.say(DATA, slow, b"one byte too many")
        on.say(DATA, quick, b"and here")
        await settle()

        assert slow.number not in on.host.streams
        assert on.agent.got[-1] == Frame.read(closing(slow.number, BROKE_RULES))
        assert len(quick_client.of(DATA)) == 2

    relayed(story)


def test_no_side_can_give_credit_that_it_does_not_owe() -> None:
    async def story(on: Setting) -> None:
        stream, _ = await on.connect()
        with pytest.raises(FrameWrong):
            await on.relay.take_from_client(stream, Frame(CREDIT, 0, credit(0, 1)[5:]))

        other, client = await on.connect()
        on.say(CREDIT, other, credit(0, 1)[5:])
        await settle()
        assert client.got[-1].reason == BROKE_RULES
        assert other.number not in on.host.streams and not on.agent.closed

    relayed(story)


def test_a_client_that_sends_more_than_was_asked_for_is_stopped() -> None:
    async def story(on: Setting) -> None:
        stream, _ = await on.connect()
        for _ in range(WINDOW // CHUNK):
            await on.relay.take_from_client(stream, Frame(DATA, 0, bytes(CHUNK)))

        with pytest.raises(FrameWrong):
            await on.relay.take_from_client(stream, Frame(DATA, 0, b"x"))

    relayed(story)


@pytest.mark.parametrize("kind", [OPEN, HELLO])
def test_an_agent_that_says_what_agents_do_not_say_loses_its_tunnel(kind: int) -> None:
    async def story(on: Setting) -> None:
        stream, _ = await on.connect()
        with pytest.raises(FrameWrong):
            on.say(kind, stream)

    relayed(story)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x03",
        b"\x00\x00\x00\x00\x01",
        b"\x09\x00\x00\x00\x01",
        bytes(CHUNK + 6),
        "text",
        None,
    ],
)
def test_what_is_no_frame_is_refused(message: object) -> None:
    with pytest.raises(FrameWrong):
        Frame.read(message)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"[" * 60_000, b"\xff"])
def test_what_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameWrong):
        Frame(HELLO, 0, payload).said  # noqa: B018  # reading it is what is refused


def test_a_reason_carries_nothing_that_a_terminal_would_act_upon() -> None:
    told = Frame(CLOSE, 1, "no \x1b[2J\x07 way\u202e".encode() + b"x" * 500)

    assert told.reason.startswith("no [2J way") and len(told.reason) <= 200
    assert "\x1b" not in told.reason


def test_connections_are_counted_by_lease() -> None:
    async def story(on: Setting) -> None:
        for _ in range(STREAMS_OF_LEASE_MAX):
            await on.relay.open(PERMIT, End().send)

        with pytest.raises(TooManyConnections) as refused:
            await on.relay.open(PERMIT, End().send)
        assert refused.value.details == {"of": "lease", "most": STREAMS_OF_LEASE_MAX}
        other = replace(PERMIT, lease_id=uuid4())
        await on.relay.open(other, End().send)
        assert on.relay.counts()[AGENT.host_id] == {
            str(PERMIT.lease_id): STREAMS_OF_LEASE_MAX,
            str(other.lease_id): 1,
        }

    relayed(story)


def test_only_data_keeps_a_stream_from_being_idle() -> None:
    async def story(on: Setting) -> None:
        idle, idle_client = await on.connect()
        busy, _ = await on.connect()

        on.now = 50
        on.say(DATA, busy, b"x")
        on.say(OPENED, idle, b"{}")
        on.now = 100
        on.relay.end_idle(100)
        await settle()

        assert idle_client.got[-1].reason == IDLE
        assert list(on.host.streams) == [busy.number]

    relayed(story)


def test_a_permit_that_would_be_refused_by_now_ends_its_streams_alone() -> None:
    async def story(on: Setting) -> None:
        dismissed = replace(PERMIT, user_id=uuid4())
        gone, gone_client = await on.connect(dismissed)
        stays, _ = await on.connect()

        on.relay.end_refused({dismissed: PersonMayNoLonger()})
        await settle()

        assert gone_client.got[-1].reason == PersonMayNoLonger.message()
        assert on.agent.got[-1].kind == CLOSE and on.agent.got[-1].stream == gone.number
        assert list(on.host.streams) == [stays.number]

    relayed(story)


def test_a_new_line_of_the_same_host_takes_the_place_of_the_old_one() -> None:
    async def story(on: Setting) -> None:
        _, client = await on.connect()
        again = on.host_of(End())

        on.relay.add(again)
        await settle()

        assert on.agent.closed and client.got[-1].reason == AGENT_GONE
        assert not on.relay.remove(on.host)
        assert on.relay.hosts == {AGENT.host_id: again}
        assert on.relay.remove(again)
        with pytest.raises(HostNotConnected):
            await on.relay.open(PERMIT, End().send)

    relayed(story)


def test_what_was_under_way_is_delivered_before_the_end() -> None:
    async def story(on: Setting) -> None:
        stream, client = await on.connect()
        client.reads.clear()
        on.say(DATA, stream, b"a" * HALF)
        on.say(DATA, stream, b"b" * HALF)
        on.say(CLOSE, stream, b"")
        await settle()

        client.reads.set()
        await settle()

        assert b"".join(each.payload for each in client.of(DATA)) == b"a" * HALF + b"b" * HALF
        assert client.got[-1].kind == CLOSE

    relayed(story)


def test_frames_that_come_for_a_stream_that_is_over_are_nothing() -> None:
    async def story(on: Setting) -> None:
        stream, _ = await on.connect()
        stream.end("", tell_agent=True)
        for kind, payload in ((DATA, b"late"), (CREDIT, frame(0, 0)[:4]), (CLOSE, b"")):
            on.say(kind, stream, payload)

        assert not on.agent.closed

    relayed(story)
