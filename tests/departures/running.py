"""A run: three hosts leave again and again, each by itself, until all that was planned is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.departures.chain import Chain
from tests.departures.crowd import Crowd
from tests.departures.ground import SCALED, Ground, Pace
from tests.departures.plan import HOSTS, RUN_SECONDS, Stint, plan
from tests.departures.records import Record, Records
from tests.departures.settling import audit, record_of
from tests.departures.stints import Host, NotDeparted
from tests.departures.work import OF_HOST, Kind
from tests.journeys.hosts import CONSUMER

SETTLERS = 12
TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A run by name: so many departures, from a seed, at a pace.

    load: what others ask for of the staying host's GPUs. room: how many those are. stay_seconds:
    how long work runs on where it went, until it is done.
    """

    name: str
    count: int
    seed: int = 1
    load: float = 0.0
    room: int = 64
    stay_seconds: float = 1.0
    of_gpus: int = 2
    of_host: Sequence[Kind] = OF_HOST
    run_seconds: tuple[float, float] = RUN_SECONDS
    pace: Pace = SCALED

    def left(self, done: Sequence[Record]) -> list[Stint]:
        """Return what is planned and not done."""
        known = {each.number for each in done}
        stints = plan(
            count=self.count,
            seed=self.seed,
            of_gpus=self.of_gpus,
            of_host=self.of_host,
            run_seconds=self.run_seconds,
        )
        open_stints = [
            replace(
                each, departures=tuple(one for one in each.departures if one.number not in known)
            )
            for each in stints
        ]
        return [each for each in open_stints if each.departures]


class Stop:
    """Asks a run to end well: hosts that are leaving leave, and all is charged and looked at."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self, *_: object) -> None:
        """Begin nothing more."""
        self._asked.set()

    def __bool__(self) -> bool:
        return self._asked.is_set()


def go_on(run: Run, records: Records, *, stop: Stop, told: Callable[[str], None] = print) -> None:
    """Do what is left of a run in a market of its own; keep a record of each departure.

    A run that is killed loses what is under way and nothing else.
    """
    left = run.left(records.departures(run.name))
    if not left:
        return
    with TemporaryDirectory(prefix="offd", ignore_cleanup_errors=True) as folder:
        ground = Ground(Path(folder), pace=run.pace, room=run.room)
        crowd = Crowd(ground, load=run.load, seed=run.seed)
        try:
            ground.found()
            crowd.start()
            kept = _depart(run, ground, left, records, stop, told)
            crowd.end()
            found = audit(ground, run.name, kept)
            records.keep(found)
            told(f"{run.name}: {kept} departures, {found.leases} leases; wrong: {found.wrong}")
        finally:
            crowd.end()
            ground.end()


def _depart(
    run: Run,
    ground: Ground,
    left: Sequence[Stint],
    records: Records,
    stop: Stop,
    told: Callable[[str], None],
) -> int:
    """Have the hosts leave side by side; return how many departures were kept."""
    settling: list[Future[None]] = []
    pool = ThreadPoolExecutor(SETTLERS)

    def settle(chain: Chain) -> None:
        record = record_of(ground, run.name, chain)
        records.keep(record)
        if not record.trouble:
            with ground.market.client(CONSUMER) as api:
                api.delete(f"volumes/{chain.volume}")
        told(_line(record))

    def leave(number: int) -> None:
        host = Host(ground, ground.leaving[number], stay_seconds=run.stay_seconds)
        for stint in [each for each in left if each.host == number]:
            _try(host, stint, lambda chain: settling.append(pool.submit(settle, chain)), stop, told)

    hosts = ThreadPoolExecutor(HOSTS)
    leaving = [hosts.submit(leave, number) for number in range(HOSTS)]
    for each in leaving:
        each.result()
    for settled in settling:
        settled.result()
    pool.shutdown()
    hosts.shutdown()
    return len(settling)


def _try(
    host: Host,
    stint: Stint,
    departed: Callable[[Chain], object],
    stop: Stop,
    told: Callable[[str], None],
) -> None:
    """Do a stint, and again what of it did not take place."""
    took: set[int] = set()

    def took_place(chain: Chain) -> None:
        took.add(chain.planned.number)
        departed(chain)

    for _ in range(TRIES_MAX):
        left = tuple(each for each in stint.departures if each.number not in took)
        if not left or stop:
            return
        try:
            host.stint(replace(stint, departures=left), took_place)
        except NotDeparted as why:
            told(f"once more: {why}")


def _line(record: Record) -> str:
    after = record.resumed_after
    went_on = "did not go on" if after is None else f"goes on after {after:.1f} s"
    return (
        f"{record.run} {record.number} {record.kind} ({record.reason}): {went_on}, "
        f"lost {record.lost:.1f} of {record.done:.1f} s, twice {record.twice_ms} ms, "
        f"unbilled {record.unbilled_ms} ms, room {record.room:.0%} {record.trouble}"
    )


def to_stderr(line: str) -> None:
    """Say how it goes."""
    print(line, file=sys.stderr, flush=True)
