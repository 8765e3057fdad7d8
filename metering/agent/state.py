"""What the agent must not forget, as a fold over the records of its spool.

Records (`t` is the kind): `head` the whole state; `lease` terms; `open`, `interval`, `closed` the
metering of a lease; `fetching` that its files come; `outputs`, `volume` what became of its files;
`notice`, `stopping` what it was told; `saved` its last checkpoint that was reported; `alive` its
heartbeat; `forgotten`; `health`; `report`; `acked`, `reported` what the server has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from .reconcile import Terms
from .spool import Record
from .wire import BATCH_MAX, VolumeMount, dump, parse

ENDS = ("exited", "stopped", "failed", "refused")
"""Reports after which nothing more of a lease's work is told."""


@dataclass(slots=True)
class Waiting:
    """Something the server has not acknowledged: its segment, and the message's part as JSON."""

    segment: int
    kind: str
    text: bytes


@dataclass(slots=True)
class LeaseState:
    """One lease. ends: per GPU the end of its last kept interval, while metering is open.

    ran_until_ms: when its work ended; None: it has not, or there was none. outputs: what became of
    the files it left; empty: not decided yet. volumes: the same of each that it could write to.
    fetching: that its files are on their way was reported. kernel: the id of the host's boot in
    which its work began; empty: an agent of before began it.
    """

    terms: Terms
    ends: dict[str, int] | None = None
    ended: bool = False
    noticed_ms: int | None = None
    stopping_ms: int | None = None
    stopping_reason: str = ""
    saved_ms: int | None = None
    alive_ms: tuple[int, int] | None = None
    ran_until_ms: int | None = None
    exit_code: int | None = None
    outputs: str = ""
    volumes: dict[str, str] = field(default_factory=dict)
    fetching: bool = False
    kernel: str = ""


@dataclass(slots=True)
class AgentState:
    """The state of one agent on one host. boot_id: of this run; older runs' samples may wait."""

    boot_id: UUID
    next_seq: int = 1
    leases: dict[UUID, LeaseState] = field(default_factory=dict)
    samples: dict[UUID, dict[int, Waiting]] = field(default_factory=dict)
    reports: dict[UUID, Waiting] = field(default_factory=dict)

    def apply(self, record: Record, segment: int) -> None:
        """Take in one record. Raises: KeyError, ValueError: written by something else."""
        match record["t"]:
            case "head":
                self.leases = {
                    UUID(each["terms"]["lease_id"]): _lease_from(each) for each in record["leases"]
                }
            case "lease":
                terms = _terms_from(record["terms"])
                if (lease := self.leases.get(terms.lease_id)) is None:
                    self.leases[terms.lease_id] = LeaseState(terms)
                else:
                    lease.terms = terms
            case "interval" | "health":
                self._take_sample(record, segment)
            case "report":
                body = record["body"]
                self.reports[UUID(body["report_id"])] = Waiting(segment, "report", dump(body))
            case "acked":
                waiting = self.samples.get(UUID(record["boot"]), {})
                for seq in [seq for seq in waiting if seq <= record["seq"]]:
                    del waiting[seq]
                if not waiting:
                    self.samples.pop(UUID(record["boot"]), None)
            case "reported":
                for report_id in record["ids"]:
                    self.reports.pop(UUID(report_id), None)
            case _:
                self._take_lease_record(record)

    def head(self) -> Record:
        """Return the state as one record, without what waits to be sent."""
        return {"t": "head", "leases": [_lease_to(lease) for lease in self.leases.values()]}

    def oldest_needed(self, current: int) -> int:
        """Return the lowest segment in which something waits; `current` when nothing does."""
        return min((each.segment for each in self.waiting()), default=current)

    def sample_batch(self, limit: int = BATCH_MAX) -> tuple[UUID, dict[str, Any], int] | None:
        """Return the oldest run's boot id, its next message and the message's last seq."""
        for boot_id, waiting in self.samples.items():
            seqs = sorted(waiting)[:limit]
            parts: dict[str, list[object]] = {"interval": [], "health": []}
            for seq in seqs:
                parts[waiting[seq].kind].append(parse(waiting[seq].text))
            message = {
                "boot_id": str(boot_id),
                "batch": parts["interval"],
                "health": parts["health"],
            }
            return boot_id, message, seqs[-1]
        return None

    def report_batch(
        self, limit: int = BATCH_MAX, holds_back: Callable[[UUID], bool] = lambda _: False
    ) -> list[dict[str, Any]]:
        """Return the oldest reports that wait, without ends of work that are held back."""
        found: list[dict[str, Any]] = []
        for waiting in self.reports.values():
            if len(found) == limit:
                break
            body = parse(waiting.text)
            assert isinstance(body, dict)
            if body["what"] not in ENDS or not holds_back(UUID(body["lease_id"])):
                found.append(body)
        return found

    def waiting(self) -> Iterator[Waiting]:
        """Yield everything that waits to be sent."""
        for group in self.samples.values():
            yield from group.values()
        yield from self.reports.values()

    def _take_sample(self, record: Record, segment: int) -> None:
        boot_id, body = UUID(record["boot"]), record["body"]
        seq = body["seq"]
        self.samples.setdefault(boot_id, {})[seq] = Waiting(segment, record["t"], dump(body))
        if boot_id == self.boot_id:
            self.next_seq = seq + 1
        lease = self.leases.get(UUID(body["lease_id"])) if record["t"] == "interval" else None
        if lease is not None and lease.ends is not None:
            lease.ends[body["gpu_uuid"]] = body["end_ms"]

    def _take_lease_record(self, record: Record) -> None:
        lease_id = UUID(record["lease"])
        lease = self.leases.get(lease_id)
        if lease is None:
            return
        match record["t"]:
            case "open":
                lease.ends, lease.kernel = dict(record["ends"]), record.get("kernel", "")
            case "closed":
                lease.ends, lease.ended = None, True
                lease.ran_until_ms = record.get("ran_until_ms")
                lease.exit_code = record.get("exit_code")
            case "fetching":
                lease.fetching = True
            case "outputs":
                lease.outputs = record["how"]
            case "volume":
                lease.volumes[record["name"]] = record["how"]
            case "saved":
                lease.saved_ms = record["at_ms"]
            case "alive":
                lease.alive_ms = (record["since_ms"], record["until_ms"])
            case "notice":
                lease.noticed_ms = record["stop_at_ms"]
            case "stopping":
                lease.stopping_ms = record["at_ms"]
                lease.stopping_reason = record["reason"]
            case "forgotten":
                del self.leases[lease_id]
            case unknown:
                raise ValueError(f"a record of kind {unknown!r}")


def iso(moment_ms: int) -> str:
    """Return UTC milliseconds as the wire writes a moment."""
    seconds, milliseconds = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def terms_record(terms: Terms) -> Record:
    """Return the record that keeps a lease's terms."""
    return {"t": "lease", "terms": _terms_to(terms)}


def ended_record(lease_id: UUID, ran_until_ms: int, exit_code: int | None) -> Record:
    """Return the record of the end of a lease whose work ran."""
    said = {"ran_until_ms": ran_until_ms, "exit_code": exit_code}
    return {"t": "closed", "lease": str(lease_id), **said}


def _terms_to(terms: Terms) -> Record:
    return asdict(terms) | {"lease_id": str(terms.lease_id)}


def _terms_from(record: Record) -> Terms:
    fields = record | {"lease_id": UUID(record["lease_id"])}
    fields["gpu_uuids"] = tuple(record["gpu_uuids"])
    fields["outputs"] = tuple(record.get("outputs", ()))
    fields["volumes"] = tuple(VolumeMount(**each) for each in record.get("volumes", ()))
    return Terms(**fields)


def _lease_to(lease: LeaseState) -> Record:
    return asdict(lease) | {"terms": _terms_to(lease.terms)}


def _lease_from(record: Record) -> LeaseState:
    return LeaseState(**(record | {"terms": _terms_from(record["terms"])}))
