"""How one market grows: what a fact, a bid, a GPU, a snapshot and a fold cost at each size.

Two curves of the market of `instant`: twenty bids that wait to each window, and GPUs with few
bids. Each point is made in a process of its own, so that its memory is its own. The goal of a fact
is that of the instant lane; `BENCH_GROWTH_BIDS` and `BENCH_GROWTH_GPUS` name other sizes, up to
100,000 (a few minutes each).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ledger.collecting import uncollected
from ledger.domain.event import Event
from ledger.eventstore import codec
from ledger.eventstore.port import Position
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.snapshots.codec import decode, encode
from marketplace.snapshots.port import Snapshot, Tail
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.instant import Lane, Traffic, times_of

BIDS = os.environ.get("BENCH_GROWTH_BIDS", "100,1000,10000")
GPUS = os.environ.get("BENCH_GROWTH_GPUS", "100,1000,10000")
FACTS = 2_000
FACTS_PER_BID = 2
"""Small markets are asked less, so that there is always something left to cancel."""
BIDS_PER_WINDOW = 20
GPUS_PER_HOST = 4.75
"""Of the hosts that `Traffic` makes, on average."""
FEW_BIDS = 200
SEED = 7


@dataclass(frozen=True, slots=True)
class Point:
    """A market of one size and what it cost. Times: milliseconds of this process's processor."""

    bids: int
    gpus: int
    leases: int
    facts: int
    bid_p50: float
    bid_p99: float
    fact_mean: float
    fact_p99: float
    offers_bytes: int
    bids_bytes: int
    snapshot_bytes: int
    kept: float
    restored: float
    folded: float


class Log:
    """All events of a market, in a file, so that they take none of the memory that is measured."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it ends with its log
        self.events = 0

    def keep(self, event: Event) -> None:
        """Add an event."""
        data = codec.encode(event)
        self._file.write(f"{event.name} {event.schema_version} {len(data)}\n".encode() + data)
        self.events += 1

    def fold(self) -> Book:
        """Fold a book as an engine does that has no snapshot, from this file."""
        book = Book("main")
        self._file.seek(0)
        for position in range(1, self.events + 1):
            name, version, size = self._file.readline().split()
            event = codec.decode(name.decode(), int(version), self._file.read(int(size)))
            book.apply(event, position)
        return book


def run() -> Iterator[Figure]:
    """Print both curves."""
    for text in BIDS.split(","):
        bids = int(text)
        yield from _printed(f"{bids:,} bids", _measured(bids // BIDS_PER_WINDOW or 1, bids))
    for text in GPUS.split(","):
        gpus = int(text)
        windows = round(gpus / GPUS_PER_HOST) or 1
        yield from _printed(f"{gpus:,} GPUs", _measured(windows, FEW_BIDS))


def _printed(name: str, point: Point) -> Iterator[Figure]:
    yield Figure(f"{name}: bids waiting", point.bids, "bids", digits=0)
    yield Figure("  GPUs listed", point.gpus, "GPUs", digits=0)
    yield Figure("  leases in the book", point.leases, "leases", digits=0)
    yield Figure("  a bid, p50", point.bid_p50, "ms", digits=3)
    yield Figure("  a bid, p99", point.bid_p99, "ms", goal="≤ 1 ms", digits=3)
    yield Figure("  a fact, mean", point.fact_mean, "ms", digits=3)
    yield Figure("  a fact, p99", point.fact_p99, "ms", goal="≤ 2 ms", digits=3)
    yield Figure("  memory of a GPU, offers alone", point.offers_bytes / point.gpus, "bytes")
    yield Figure("  memory of a bid or lease", point.bids_bytes / _held(point), "bytes")
    yield Figure("  snapshot", point.snapshot_bytes / 1e6, "MB", digits=2)
    yield Figure("  writing it, by the keeper", point.kept, "ms")
    yield Figure("  starting from it", point.restored, "ms")
    yield Figure("  folding all events instead", point.folded, "ms")
    yield Figure("    each", 1e3 * point.folded / point.facts, "µs")


def _held(point: Point) -> int:
    return max(1, point.bids + point.leases)


def _measured(windows: int, bids: int) -> Point:
    """Make a market of a size in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.growth", str(windows), str(bids)]
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Point(**json.loads(made.stdout))


def made(windows: int, bids: int) -> Point:
    """Fill a market, let facts come, keep it, and start it again both ways."""
    log = Log()
    traffic, lane = Traffic(random.Random(SEED)), Lane(keep=log.keep)
    bare = _resident()
    for _ in range(windows):
        lane.take_in(traffic.offer())
    listed = _resident()
    while len(lane.book.bids) < bids:
        lane.take_in(traffic.bid())
    filled = _resident()
    lane.keep = None
    point_bids, leases = len(lane.book.bids), len(lane.book.held)
    gpus = sum(len(listed.terms.gpus) for listed in lane.book.offers.values())
    with uncollected():  # as engines do
        started = time.process_time()
        body = encode(Snapshot(state_of(lane.book), Tail(), Position(lane.book.read_to), 0, None))
        kept = time.process_time()
        restored(decode(body).state)
        again = time.process_time()
        log.fold()
        folded = time.process_time()
    times = times_of(lane, traffic, min(FACTS, FACTS_PER_BID * point_bids))
    asked = times["bid, nothing found"] + times["bid, granted"]
    everything = [each for kind in times.values() for each in kind]
    return Point(
        bids=point_bids,
        gpus=gpus,
        leases=leases,
        facts=log.events,
        bid_p50=1e3 * percentile(asked, 0.5),
        bid_p99=1e3 * percentile(asked, 0.99),
        fact_mean=1e3 * sum(everything) / len(everything),
        fact_p99=1e3 * percentile(everything, 0.99),
        offers_bytes=listed - bare,
        bids_bytes=filled - listed,
        snapshot_bytes=len(body),
        kept=1e3 * (kept - started),
        restored=1e3 * (again - kept),
        folded=1e3 * (folded - again),
    )


def _resident() -> int:
    """Return the bytes that this process holds in memory."""
    with open("/proc/self/statm", encoding="ascii") as figures:
        return int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(asdict(made(int(sys.argv[1]), int(sys.argv[2])))))
