"""The relay between agents and clients: streams, each with its credit, and who may have how many.

It passes frames on and keeps little: of each stream at most WINDOW bytes on their way to a client,
since an agent is not let send more before the client has taken some. It knows neither websockets
nor tables: ends are given as what sends to them, and frames are put in.

A hostile or broken end ends its own stream, or, where it is an agent, those of its own host.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from uuid import UUID

from ledger.domain.refusal import Refusal
from metering.agent.access.frames import (
    CLOSE,
    CREDIT,
    DATA,
    END,
    OPEN,
    OPENED,
    WINDOW,
    Frame,
    FrameWrong,
    closing,
    credit,
    frame,
    spoken,
)
from metering.domain.access import (
    STREAMS_OF_HOST_MAX,
    STREAMS_OF_LEASE_MAX,
    STREAMS_OF_PERSON_MAX,
    Allowed,
    HostNotConnected,
    Permit,
    TooManyConnections,
)
from metering.ingest.tunnels import Agent

SendFrame = Callable[[bytes], Awaitable[None]]
Clock = Callable[[], float]

AGENT_GONE = "the host's line is lost"
IDLE = "nothing was sent for too long"
BROKE_RULES = "one side sent what it must not"


class Stream:
    """One connection of a client into leased work; the agent knows it by its number.

    room: bytes that the agent may still send. owed: bytes that the client has and did not say to
    be done with. The same for the other way, with `up`. The four can only move WINDOW about.
    """

    def __init__(self, number: int, permit: Permit, host: Host, send: SendFrame, now: float):
        self.number = number
        self.permit = permit
        self.host = host
        self.seen = now
        self.is_over = False
        self._send = send
        self._waiting = deque[bytes]()
        self._credit = 0
        self._wake = asyncio.Event()
        self._room = self._room_up = WINDOW
        self._owed = self._owed_up = 0
        self._told: bytes | None = None

    # --- from the agent; never waits, for it serves all streams of its host --------------------

    def from_agent(self, got: Frame, now: float) -> None:
        """Take a frame of this stream from the agent."""
        try:
            self._take(got, now)
        except FrameWrong:
            self.end(BROKE_RULES, tell_agent=True)

    def _take(self, got: Frame, now: float) -> None:
        if got.kind == DATA:
            self._room -= len(got.payload)
            if self._room < 0:
                raise FrameWrong("more than was asked for")
            self.seen = now
            self._put(frame(DATA, 0, got.payload))
        elif got.kind == CREDIT:
            self._owed_up -= got.credited
            if self._owed_up < 0:
                raise FrameWrong("done with more than there was")
            self._room_up += got.credited
            self._credit += got.credited
            self._wake.set()
        elif got.kind in (END, OPENED):
            self._put(frame(got.kind, 0, got.payload))
        elif got.kind == CLOSE:
            self.end(got.reason)
        else:
            raise FrameWrong("not from an agent")

    def _put(self, message: bytes) -> None:
        # Frames without data are as long as they are many: a host's own bound on nonsense.
        if self.is_over or len(self._waiting) > WINDOW // 64:
            raise FrameWrong("too many frames")
        self._waiting.append(message)
        self._wake.set()

    # --- from the client -----------------------------------------------------------------------

    async def from_client(self, got: Frame, now: float) -> None:
        """Take a frame from the client and pass it on; waits while the host's line is full."""
        if got.kind == DATA:
            self._room_up -= len(got.payload)
            if self._room_up < 0:
                raise FrameWrong("more than was asked for")
            self._owed_up += len(got.payload)
            self.seen = now
        elif got.kind == CREDIT:
            self._owed -= got.credited
            if self._owed < 0:
                raise FrameWrong("done with more than there was")
            self._room += got.credited
        elif got.kind not in (END, CLOSE):
            raise FrameWrong("not from a client")
        if got.kind == CLOSE:
            self.end("", tell_agent=True)
        elif not self.is_over:
            await self.host.send(frame(got.kind, self.number, got.payload))

    # --- to the client -------------------------------------------------------------------------

    async def deliver(self) -> str:
        """Send the client all that comes for it, until the stream is over; return why it is."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._credit:
                if self._credit:
                    count, self._credit = self._credit, 0
                    await self._send(credit(0, count))
                if self._waiting:
                    message = self._waiting.popleft()
                    if message[0] == DATA:
                        self._owed += len(message) - len(frame(DATA, 0))
                    await self._send(message)
            if self._told is not None:
                await self._send(self._told)
                return self._told[5:].decode(errors="replace")

    def end(self, reason: str, *, tell_agent: bool = False) -> None:
        """End the stream: what is on its way still goes, then the client is told."""
        if self.is_over:
            return
        self.is_over = True
        self.host.streams.pop(self.number, None)
        self._told = closing(0, reason)
        self._wake.set()
        if tell_agent:
            self.host.tell_soon(closing(self.number, reason))


class Host:
    """The end of one agent's tunnel in this process, and the streams that pass through it."""

    def __init__(self, agent: Agent, allowed: Allowed, send: SendFrame, close: Callable[[], None]):
        self.agent = agent
        self.allowed = allowed
        self.streams: dict[int, Stream] = {}
        self.close = close
        self._send = send
        self._numbers = itertools.count(1)
        self._tasks = set[asyncio.Task[None]]()

    async def send(self, message: bytes) -> None:
        """Send a frame to the agent."""
        await self._send(message)

    def tell_soon(self, message: bytes) -> None:
        """Send a frame without waiting for it: how a stream is ended from elsewhere."""
        task = asyncio.get_running_loop().create_task(self._tell(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, message: bytes) -> None:
        with suppress(Exception):  # the tunnel is ending, and with it all that it carries
            await self._send(message)

    def take(self, got: Frame, now: float) -> None:
        """Hand a frame from the agent to the stream that it is for.

        Raises: FrameWrong where no frame of that kind comes from an agent.
        """
        if got.kind not in (OPENED, DATA, END, CLOSE, CREDIT):
            raise FrameWrong("not from an agent")
        stream = self.streams.get(got.stream)
        if stream is not None:  # else it has just been ended from this side
            stream.from_agent(got, now)

    def end(self) -> None:
        """End all streams: the agent is gone."""
        for stream in list(self.streams.values()):
            stream.end(AGENT_GONE)

    def next_number(self) -> int:
        """Return a number that no stream of this tunnel had lately."""
        return next(self._numbers) & 0xFFFF_FFFF or self.next_number()


class Relay:
    """All tunnels that end in this process."""

    def __init__(self, *, clock: Clock) -> None:
        self.hosts: dict[UUID, Host] = {}
        self._clock = clock

    def add(self, host: Host) -> None:
        """Take a tunnel on; an earlier one of the same host is of a line that was lost."""
        earlier = self.hosts.get(host.agent.host_id)
        self.hosts[host.agent.host_id] = host
        if earlier is not None:
            earlier.end()
            earlier.close()

    def remove(self, host: Host) -> bool:
        """Let go of a tunnel; return False where another has taken its place."""
        host.end()
        if self.hosts.get(host.agent.host_id) is not host:
            return False
        del self.hosts[host.agent.host_id]
        return True

    def take(self, host: Host, got: Frame) -> None:
        """Take a frame from an agent. Raises: FrameWrong."""
        host.take(got, self._clock())

    async def open(self, permit: Permit, send: SendFrame) -> Stream:
        """Begin a stream to what a permit names; the agent says whether it comes about.

        Raises: HostNotConnected, TooManyConnections.
        """
        host = self.hosts.get(permit.host_id)
        if host is None:
            raise HostNotConnected(host_id=permit.host_id)
        self._check_counts(permit, host)
        stream = Stream(host.next_number(), permit, host, send, self._clock())
        host.streams[stream.number] = stream
        said = {
            "lease": str(permit.lease_id),
            "what": permit.what,
            "port": permit.port,
            "key": permit.key,
        }
        await host.send(spoken(OPEN, stream.number, said))
        return stream

    async def take_from_client(self, stream: Stream, got: Frame) -> None:
        """Take a frame from a client. Raises: FrameWrong."""
        await stream.from_client(got, self._clock())

    def _check_counts(self, permit: Permit, host: Host) -> None:
        if len(host.streams) >= STREAMS_OF_HOST_MAX:
            raise TooManyConnections(of="host", most=STREAMS_OF_HOST_MAX)
        of_lease = sum(each.permit.lease_id == permit.lease_id for each in host.streams.values())
        if of_lease >= STREAMS_OF_LEASE_MAX:
            raise TooManyConnections(of="lease", most=STREAMS_OF_LEASE_MAX)
        of_person = sum(each.permit.user_id == permit.user_id for each in self.streams())
        if of_person >= STREAMS_OF_PERSON_MAX:
            raise TooManyConnections(of="person", most=STREAMS_OF_PERSON_MAX)

    def streams(self) -> Iterator[Stream]:
        """Yield every open stream."""
        for host in self.hosts.values():
            yield from host.streams.values()

    def counts(self) -> dict[UUID, dict[str, int]]:
        """Return how many streams lead into which lease, by host."""
        return {
            host_id: dict(Counter(str(each.permit.lease_id) for each in host.streams.values()))
            for host_id, host in self.hosts.items()
        }

    def end_idle(self, idle_seconds: float) -> None:
        """End the streams that have carried no data for so long."""
        latest = self._clock() - idle_seconds
        for stream in [each for each in self.streams() if each.seen <= latest]:
            stream.end(IDLE, tell_agent=True)

    def end_refused(self, refusals: dict[Permit, Refusal]) -> None:
        """End the streams whose permit would be refused by now."""
        for stream in [each for each in self.streams() if each.permit in refusals]:
            stream.end(refusals[stream.permit].message(), tell_agent=True)
