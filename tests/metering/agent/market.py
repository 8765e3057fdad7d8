"""The server's side of the wire contract, on loopback, with faults that can be asked for."""

from __future__ import annotations

import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID, uuid4

from metering.agent import sealing, wire
from metering.agent.strict import Message

TOKEN = "opa_test_token"
GRACE_SECONDS = 2


@dataclass
class Market:
    """What the server was told, each thing once, and what it answers.

    away: answers 503. lose_replies: that many requests are taken in, but not answered.
    poison: numbers of samples that are refused for good. fault: a status and a body that every
    request is answered with. takes_logs: an older server does not.
    """

    url: str = ""
    host_id: UUID = field(default_factory=uuid4)
    sample_seconds: int = 10
    poll_seconds: int = 5
    desired: dict[UUID, wire.Assignment] = field(default_factory=dict)
    registrations: list[wire.Registration] = field(default_factory=list)
    samples: dict[tuple[UUID, int], wire.Interval | wire.Health] = field(default_factory=dict)
    reports: dict[UUID, wire.Report] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    logs: dict[tuple[UUID, wire.Stream], bytearray] = field(default_factory=dict)
    ended_logs: set[tuple[UUID, wire.Stream]] = field(default_factory=set)
    takes_logs: bool = True
    taking: wire.Taking = "all"
    repeated: int = 0
    away: bool = False
    lose_replies: int = 0
    token: str = TOKEN
    refuse_registration: bool = False
    poison: set[int] = field(default_factory=set)
    fault: tuple[int, bytes] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    asked: list[wire.SecretsAsked] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, assignment: wire.Assignment) -> UUID:
        self.desired[assignment.lease_id] = assignment
        return assignment.lease_id

    def intervals(self, lease_id: UUID, gpu_uuid: str | None = None) -> list[wire.Interval]:
        """Return a lease's intervals in the order of time."""
        found = [
            each
            for each in self.samples.values()
            if isinstance(each, wire.Interval)
            and each.lease_id == lease_id
            and gpu_uuid in (None, each.gpu_uuid)
        ]
        return sorted(found, key=lambda each: (each.gpu_uuid, each.start_ms))

    def health(self) -> list[wire.Health]:
        return [each for each in self.samples.values() if isinstance(each, wire.Health)]

    def told(self, lease_id: UUID) -> list[wire.Report]:
        return [each for each in self.reports.values() if each.lease_id == lease_id]

    def answer(self, method: str, path: str, body: bytes) -> Message:
        match method, path:
            case "PUT", wire.HOST_PATH:
                if self.refuse_registration:
                    raise wire.WireError("this host is not wanted")
                self.registrations.append(wire.Registration.from_json(wire.parse(body)))
                return wire.Registered(
                    host_id=self.host_id,
                    sample_seconds=self.sample_seconds,
                    poll_seconds=self.poll_seconds,
                    server_time=datetime.now(UTC),
                )
            case "POST", wire.SECRETS_PATH:
                return self._seal(wire.SecretsAsked.from_json(wire.parse(body)))
            case "GET", wire.ASSIGNMENTS_PATH:
                return wire.Assignments(
                    server_time=datetime.now(UTC),
                    assignments=tuple(self.desired.values()),
                    taking=self.taking,
                )
            case "POST", wire.REPORTS_PATH:
                batch = wire.ReportBatch.from_json(wire.parse(body))
                for report in batch.reports:
                    self.repeated += report.report_id in self.reports
                    self.reports.setdefault(report.report_id, report)
                return wire.ReportsAccepted(accepted=len(batch.reports))
            case "POST", wire.SAMPLES_PATH:
                return self._take(wire.SampleBatch.from_json(wire.parse(body)))
            case "POST", wire.LOGS_PATH if self.takes_logs:
                pieces = wire.LogBatch.from_json(wire.parse(body)).pieces
                return wire.LogsTaken(pieces=tuple(map(self._take_log, pieces)))
        raise wire.WireError(f"no such call: {method} {path}")

    def _take_log(self, piece: wire.LogPiece) -> wire.LogPieceTaken:
        key, outcome = (piece.lease_id, piece.stream), "taken"
        known = self.logs.setdefault(key, bytearray())
        if piece.skipped:
            known += b"?" * (piece.offset - len(known))
        if piece.offset > len(known):
            outcome = "ahead"
        else:
            known += piece.content[len(known) - piece.offset :]
            if piece.ended:
                self.ended_logs.add(key)
        return wire.LogPieceTaken(
            lease_id=piece.lease_id,
            attempt=piece.attempt,
            stream=piece.stream,
            size=len(known),
            outcome=outcome,  # type: ignore[arg-type]  # one of two
            followed=True,
        )

    def _seal(self, asked: wire.SecretsAsked) -> wire.SecretsSealed:
        self.asked.append(asked)
        names = self.desired[asked.lease_id].secrets
        said = {name: b64encode(self.secrets[name].encode()).decode() for name in names}
        public, attempt = b64decode(asked.public_key), f"{asked.lease_id} {asked.attempt_id}"
        sealed = sealing.seal(public, attempt, json.dumps(said).encode())
        self.sealed.append(b64encode(sealed).decode())
        return wire.SecretsSealed(
            lease_id=asked.lease_id, attempt_id=asked.attempt_id, sealed=self.sealed[-1]
        )

    def _take(self, batch: wire.SampleBatch) -> wire.Acknowledged:
        both: list[wire.Interval | wire.Health] = [*batch.batch, *batch.health]
        together = sorted(both, key=lambda each: each.seq)
        if any(each.seq in self.poison for each in together):
            raise wire.WireError("poison")
        for each in together:
            key = batch.boot_id, each.seq
            self.repeated += key in self.samples
            # What is sent again under the same key must say the same.
            assert self.samples.setdefault(key, each) == each
        return wire.Acknowledged(acknowledged_seq=together[-1].seq)


@contextmanager
def served(market: Market) -> Iterator[Market]:
    """Serve the market on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with market.lock:
                market.requests.append(f"{self.command} {self.path}")
                status, answer = self._decide(body)
                if market.lose_replies > 0:
                    market.lose_replies -= 1
                    self.close_connection = True
                    return
            data = wire.dump(answer)
            if market.fault is not None:
                status, data = market.fault
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = _serve  # noqa: N815  # the names http.server asks for

        def _decide(self, body: bytes) -> tuple[int, dict[str, Any]]:
            if market.away or market.fault is not None:
                return 503, {"code": "away"}
            if self.headers.get("Authorization") != f"Bearer {market.token}":
                return 401, {"code": "token-unknown"}
            try:
                return 200, market.answer(self.command, self.path, body).to_json()
            except wire.WireError as error:
                said = {"place": error.place, "reason": error.reason}
                return 400, {"code": "bad-message", "message": str(error), "details": said}

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    market.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield market
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def assignment(
    *gpu_uuids: str,
    now_ms: int,
    seconds: float = 3600,
    command: tuple[str, ...] = ("serve-a-model",),
    phase: wire.Phase = "run",
    stop_in: float | None = None,
    grace_seconds: int = GRACE_SECONDS,
    lease_id: UUID | None = None,
    environment: dict[str, str] | None = None,
    secrets: tuple[str, ...] = (),
    sandbox: str = "",
) -> wire.Assignment:
    """Return an assignment that starts at `now_ms` and lasts `seconds`."""
    start = datetime.fromtimestamp(now_ms / 1000, UTC)
    return wire.Assignment(
        lease_id=lease_id or uuid4(),
        gpu_uuids=gpu_uuids,
        starts_at=start,
        ends_at=start + timedelta(seconds=seconds),
        phase=phase,
        stop_at=None if stop_in is None else start + timedelta(seconds=stop_in),
        grace_seconds=grace_seconds,
        runtime="process",
        command=command,
        environment=environment or {},
        workload_kind="inference",
        secrets=secrets,
        sandbox=sandbox,
    )
