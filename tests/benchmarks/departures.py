"""Hosts leave in every way under work that saves itself: does it go on, when, and what is lost.

So many as `BENCH_DEPARTURES` says; `python -m tests.departures` has the run of two hundred, the
page, and runs that go on where they were ended. Lost work is stated beside what
preempt-and-requeue loses at the same departures: all that was done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import Figure, percentile
from tests.departures.figures import known, share
from tests.departures.records import Audit, Record, Records
from tests.departures.running import Run, Stop, go_on, to_stderr
from tests.departures.work import KINDS

RUN = Run("bench", int(os.environ.get("BENCH_DEPARTURES", "18")))


def run() -> Iterator[Figure]:
    """Let hosts leave side by side; each departure is told as it comes."""
    with TemporaryDirectory(prefix="offr") as folder:
        records = Records(Path(folder) / "departures.jsonl")
        go_on(RUN, records, stop=Stop(), told=to_stderr)
        yield from table(records.departures(), records.audits())


def table(records: Sequence[Record], audits: Sequence[Audit]) -> Iterator[Figure]:
    """Return the figures of these departures."""
    yield Figure("departures", len(records), "", digits=0)
    noticed = [each.is_in_time for each in records if each.kind == "notice"]
    yield _share("resumed in time, of those with notice", noticed, goal=">= 99")
    yield _share("resumed in time, of all", [e.is_in_time for e in records], goal=">= 94")
    yield _share("resumed on another host", [each.is_elsewhere for each in records])
    promised = [e.is_free_in_time for e in records if e.is_free_in_time is not None]
    yield _share("cards free by the owner's deadline", promised, goal="100")
    twice = sum(each.twice_ms for each in records) / 1000
    unbilled = sum(each.unbilled_ms for each in records) / 1000
    yield Figure("granted seconds billed twice", twice, "s", goal="0", digits=3)
    yield Figure("granted seconds not billed", unbilled, "s", goal="0", digits=3)
    yield _share("charged by the rule", [each.is_charged_right for each in records])
    wrong = sum(len(each.wrong) for each in audits)
    yield Figure("left open, held or out of balance", wrong, "", goal="0", digits=0)
    lost, requeue = sum(e.lost for e in records), sum(e.done for e in records)
    yield Figure("lost work", lost, "s", requeue, "preempt-and-requeue", goal="<= 34 %")
    words = known(each.since_last_word for each in records)
    told = known(e.resumed_after for e in records if e.last_word_at is None)
    for at, name in ((0.5, "p50"), (0.99, "p99")):
        if words:
            yield Figure(f"last word of a silent host to running, {name}",
                         percentile(words, at), "s")  # fmt: skip
        if told:
            yield Figure(f"told or failed to running, {name}", percentile(told, at), "s")
    for kind in KINDS:
        if some := [each for each in records if each.kind == kind]:
            yield Figure(f"{kind}: lost work, p50", percentile([e.lost for e in some], 0.5), "s")


def _share(name: str, told: Sequence[bool], *, goal: str = "") -> Figure:
    return Figure(name, 100 * share(told), "%", goal=goal)
