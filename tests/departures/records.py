"""What became of each departure, one line of JSON each, kept as it comes: a run can go on later."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tests.departures.work import Kind


@dataclass(frozen=True, slots=True)
class Billed:
    """What one lease was granted and charged. Times in milliseconds, money in nano-units.

    proved_ms: by its agents' own spools, up to when the right ended. granted_ms: by the market.
    due_nanos: its price for what was proved.
    """

    lease_id: str
    proved_ms: int
    granted_ms: int
    charged_nanos: int
    due_nanos: int

    @property
    def is_right(self) -> bool:
        """Tell if what is proved was granted, and charged, to the millisecond and the nano-unit."""
        return self.granted_ms == self.proved_ms and self.charged_nanos == self.due_nanos


@dataclass(frozen=True, slots=True)
class Record:
    """One departure. Moments are seconds since 1970 of the machine's clock; work is in seconds.

    run, number: which one of which run. placed_at, deadline: of its bid. began_at: its first step.
    left_at: when the owner asked, or the fault came. last_word_at: when the market heard a host
    last that left without a word. free_by: what its owner was promised; None: nothing was asked.
    free_at: when the last process was off the card. last_step_at: of the work there. room: the
    share of the staying host that was leased. closed_at, reason: of the lease. resumed_at: the
    first step elsewhere; None: it did not go on. next_from, ends_by: the time of the lease that
    it went on in. done: work that was done; lost: what had to be done again, or all of it.
    shared_ms: time for which both leases were granted. trouble: what could not be found out.
    """

    run: str
    number: int
    kind: Kind
    host: str
    placed_at: float
    deadline: float
    began_at: float
    left_at: float
    last_word_at: float | None
    free_by: float | None
    free_at: float | None
    last_step_at: float
    room: float
    closed_at: float | None = None
    reason: int = 0
    resumed_at: float | None = None
    is_elsewhere: bool = False
    next_from: float | None = None
    ends_by: float | None = None
    links: int = 0
    done: float = 0.0
    lost: float = 0.0
    shared_ms: int = 0
    billed: tuple[Billed, ...] = ()
    trouble: str = ""

    @property
    def is_in_time(self) -> bool:
        """Tell if it went on, with room for all of its rest before its deadline."""
        return self.resumed_at is not None and (self.ends_by or 0) <= self.deadline

    @property
    def resumed_after(self) -> float | None:
        """How long after it was taken away it ran elsewhere."""
        return None if self.resumed_at is None else self.resumed_at - self.left_at

    @property
    def since_last_word(self) -> float | None:
        """How long after its host was heard last it ran elsewhere."""
        if self.resumed_at is None or self.last_word_at is None:
            return None
        return self.resumed_at - self.last_word_at

    @property
    def is_free_in_time(self) -> bool | None:
        """Tell if its owner had the card when promised; None: nothing was asked for."""
        if self.free_by is None:
            return None
        return self.free_at is not None and self.free_at <= self.free_by

    @property
    def twice_ms(self) -> int:
        """Granted time that was billed and is not proved, or is granted to both leases."""
        return self.shared_ms + sum(max(0, e.granted_ms - e.proved_ms) for e in self.billed)

    @property
    def unbilled_ms(self) -> int:
        """Granted time that is proved and was not billed."""
        return sum(max(0, each.proved_ms - each.granted_ms) for each in self.billed)

    @property
    def is_charged_right(self) -> bool:
        """Tell if each lease was charged its price for what is proved, and all were looked at."""
        leases = 1 if self.resumed_at is None else 2
        return len(self.billed) >= leases and all(
            each.charged_nanos == each.due_nanos for each in self.billed
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at once all was over in a market. wrong: what did not hold, in words."""

    run: str
    departures: int
    leases: int
    wrong: tuple[str, ...]


class Records:
    """A file of them. Every line is on the disk when `keep` returns; a torn last one is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            text = path.read_bytes()
            whole = text.rfind(b"\n") + 1
            if whole < len(text):
                os.truncate(path, whole)

    def keep(self, each: Record | Audit) -> None:
        """Add one."""
        line = json.dumps({"what": type(each).__name__.lower(), **asdict(each)})
        with self._lock, self._path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def departures(self, run: str | None = None) -> list[Record]:
        """Return those of a run, or all, by their number."""
        found = [_record(told) for told in self._told("record")]
        some = [each for each in found if run in (None, each.run)]
        return sorted(some, key=lambda each: (each.run, each.number))

    def audits(self) -> list[Audit]:
        """Return what was looked at after each market."""
        return [Audit(**{**told, "wrong": tuple(told["wrong"])}) for told in self._told("audit")]

    def _told(self, what: str) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            told = json.loads(line)
            if told.pop("what") == what:
                yield told


def _record(told: dict[str, Any]) -> Record:
    known = {field.name for field in fields(Record)}
    told = {name: value for name, value in told.items() if name in known}
    return Record(**{**told, "billed": tuple(Billed(**each) for each in told["billed"])})
