"""What agents wrote down themselves of the use of GPUs: kept, also where they have dropped it.

An agent drops a segment of its spool once all of it is delivered. A hard link of each keeps it
readable. It is read here without any code of the market, as the second opinion on a bill.
"""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

LOOKED_SECONDS = 0.5
EPOCH, MILLI = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
FAULTS = frozenset({"driver-mismatch", "gpu-lost", "xid"})
"""What leases end for, of all that agents tell of GPUs."""
Span = tuple[int, int]
"""From one moment to another, in milliseconds since 1970."""


def millis(text: str) -> int:
    """Return a moment in whole milliseconds since 1970, as meters have it."""
    return (datetime.fromisoformat(text) - EPOCH) // MILLI


@dataclass(slots=True)
class _Segment:
    kept: Path
    read_to: int = 0


@dataclass(slots=True)
class _Spool:
    """One agent's. uses: of each lease, by GPU; faults: of each GPU, when each began."""

    folder: Path
    kept: Path
    segments: dict[str, _Segment] = field(default_factory=dict)
    uses: dict[str, dict[str, set[Span]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    faults: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class Spools:
    """The spools of several agents. Safe to ask from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spools: list[_Spool] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="spools", daemon=True)
        self._thread.start()

    def follow(self, folder: Path) -> None:
        """Keep what an agent writes below this folder, which need not be there yet."""
        kept = self._folder / f"spool-{len(self._spools)}"
        kept.mkdir(parents=True, mode=0o700)
        with self._lock:
            self._spools.append(_Spool(folder, kept))

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def uses(self) -> dict[str, dict[str, list[Span]]]:
        """Return of each lease when it held which GPU: joined, in order."""
        with self._lock:
            self._read()
            found: dict[str, dict[str, set[Span]]] = defaultdict(lambda: defaultdict(set))
            for spool in self._spools:
                for lease_id, by_gpu in spool.uses.items():
                    for gpu, spans in by_gpu.items():
                        found[lease_id][gpu] |= spans
        return {
            lease_id: {gpu: joined(spans) for gpu, spans in by_gpu.items()}
            for lease_id, by_gpu in found.items()
        }

    def fault_of(self, gpu: str, *, since: int) -> int | None:
        """Return when a GPU first had a fault from a moment on, in milliseconds."""
        with self._lock:
            self._read()
            told = [at for spool in self._spools for at in spool.faults[gpu] if at >= since]
        return min(told, default=None)

    def _keep(self) -> None:
        while not self._over.wait(LOOKED_SECONDS):
            with self._lock:
                for spool in self._spools:
                    self._link(spool)

    def _link(self, spool: _Spool) -> None:
        if not spool.folder.exists():
            return
        for path in spool.folder.glob("*.log"):
            if path.name not in spool.segments:
                with suppress(FileNotFoundError):  # dropped in this moment, so it was empty of ours
                    os.link(path, spool.kept / path.name)
                    spool.segments[path.name] = _Segment(spool.kept / path.name)

    def _read(self) -> None:
        for spool in self._spools:
            self._link(spool)
            for segment in spool.segments.values():
                with segment.kept.open("rb") as file:
                    file.seek(segment.read_to)
                    for line in file:
                        if line.endswith(b"\n"):
                            segment.read_to += len(line)
                            _take(spool, line)


def _take(spool: _Spool, line: bytes) -> None:
    for record in json.loads(line.split(b" ", 1)[1]):
        body = record.get("body")
        if record["t"] == "interval":
            span = (body["start_ms"], body["end_ms"])
            spool.uses[body["lease_id"]][body["gpu_uuid"]].add(span)
        elif record["t"] == "health" and body["gpu_uuid"] and body["kind"] in FAULTS:
            spool.faults[body["gpu_uuid"]].add(millis(body["at"]))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that touch or overlap as one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[Span]) -> int:
    """Return how long spans last together, in milliseconds."""
    return sum(end - start for start, end in spans)


def until(spans: Iterable[Span], last: int) -> list[Span]:
    """Return what lies before a moment."""
    return [(start, min(end, last)) for start, end in spans if start < last]


def shared(some: Iterable[Span], others: Iterable[Span]) -> int:
    """Return for how long two lists of spans overlap, in milliseconds."""
    theirs = list(others)
    return sum(
        max(0, min(end, other_end) - max(start, other_start))
        for start, end in some
        for other_start, other_end in theirs
    )
