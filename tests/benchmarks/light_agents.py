"""Very many light agents in one process: each a beat on a connection, and nothing behind it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

from metering.agent import wire

GPUS = 8
CONNECTING_AT_ONCE = 50


@dataclass
class LightAgent:
    """What one host's agent sends: at each beat an interval of each GPU, and a question.

    through_ms: up to when its samples were answered. starts_ms: when its lease began.
    """

    number: int
    token: str
    lease_id: UUID
    starts_ms: int
    host_id: UUID
    boot_id: UUID = field(default_factory=uuid4)
    seq: int = 0
    through_ms: int = 0

    @property
    def gpus(self) -> list[str]:
        """Return its GPUs."""
        return [f"GPU-{self.number}-{index}" for index in range(GPUS)]

    def samples(self, until_ms: int) -> bytes:
        """Return the next batch, up to a moment."""
        start_ms = self.through_ms or self.starts_ms
        length_ms = until_ms - start_ms
        rows = [
            {
                "seq": self.seq + index + 1,
                "lease_id": str(self.lease_id),
                "gpu_uuid": gpu_uuid,
                "start_ms": start_ms,
                "end_ms": until_ms,
                "granted_ms": length_ms,
                "occupied_ms": length_ms,
                "busy_ms": length_ms // 2,
                "memory_used_mib": 40_000,
                "cpu_ms": length_ms,
                "io_bytes": 1_000_000,
                "net_bytes": 1_000_000,
                "energy_mj": 300 * length_ms,
            }
            for index, gpu_uuid in enumerate(self.gpus)
        ]
        self.seq += GPUS
        return json.dumps({"boot_id": str(self.boot_id), "batch": rows, "health": []}).encode()


@dataclass(frozen=True, slots=True)
class Answered:
    """One beat's answers: when it was due, and after how many seconds samples and question were."""

    due: float
    samples: float
    question: float


@dataclass
class Fleet:
    """Agents that beat every `beat_seconds`, evenly spread; told: called after each beat."""

    port: int
    agents: list[LightAgent]
    beat_seconds: float
    told: Callable[[LightAgent], None]
    beats: list[Answered] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    overdue: int = 0
    """Agents that had still to send when the time was over: the market did not keep up."""

    def run(self, seconds: float) -> None:
        """Let all of them beat for so long."""
        asyncio.run(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for agent in self.agents:
                group.create_task(self._live(agent, gate, ends))

    async def _live(self, agent: LightAgent, gate: asyncio.Semaphore, ends: float) -> None:
        due = time.monotonic() + self.beat_seconds * agent.number / len(self.agents)
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > ends:
                self.overdue += 1
                break
            async with gate:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                await self._beat(reader, writer, agent, due)
            finally:
                writer.close()
            due += self.beat_seconds

    async def _beat(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        agent: LightAgent,
        due: float,
    ) -> None:
        """Send and ask once. A connection is closed before the next beat, as it rests too long."""
        until_ms = int(datetime.now(UTC).timestamp() * 1000)
        body = agent.samples(until_ms)
        status = await self._ask(reader, writer, agent, "POST", wire.SAMPLES_PATH, body)
        samples = time.monotonic() - due
        if status == 200:
            agent.through_ms = until_ms
            self.told(agent)
        asked = time.monotonic()
        other = await self._ask(reader, writer, agent, "GET", wire.ASSIGNMENTS_PATH, b"")
        self.refused += [each for each in (status, other) if each != 200]
        self.beats.append(Answered(due, samples, time.monotonic() - asked))

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        agent: LightAgent,
        method: str,
        path: str,
        body: bytes,
    ) -> int:
        kind = "Content-Type: application/json\r\n" if body else ""
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}"
            f"Content-Length: {len(body)}\r\nAuthorization: Bearer {agent.token}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return int(head[9:12])
