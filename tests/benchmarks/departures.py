"""Hosts that leave in every way under work that saves itself: does it go on, and what is lost.

So many as `BENCH_DEPARTURES` says, in rounds of one of each kind; `tests/journeys/departing.py` has
the scene. Lost work is stated beside what preempt-and-requeue loses at the same departures: all
that was done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import Figure, percentile
from tests.journeys.departing import SETTINGS, Outcome, Scene
from tests.journeys.installation import Installation
from tests.journeys.saving_work import KINDS

COUNT = int(os.environ.get("BENCH_DEPARTURES", "18"))
RUN_SECONDS = (15.0, 60.0)
"""How long work runs before: with a checkpoint every 5 s. Longer work loses a smaller share."""


def run() -> Iterator[Figure]:
    """Let hosts leave, round after round; each outcome is told as it comes."""
    with TemporaryDirectory(prefix="offw", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        market = Installation(place / "home", SETTINGS)
        scene: Scene | None = None
        outcomes: list[Outcome] = []
        try:
            market.found()
            market.start_all()
            scene = Scene(market, place)
            while len(outcomes) < COUNT:
                kinds = KINDS[: COUNT - len(outcomes)]
                for each in scene.round(kinds=kinds, seconds=RUN_SECONDS):
                    outcomes.append(each)
                    print(json.dumps(asdict(each)), file=sys.stderr, flush=True)
        finally:
            if scene is not None:
                scene.end()
            market.end_all()
    yield from table(outcomes)


def table(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Return the figures of these departures."""
    yield Figure("departures", len(outcomes), "", digits=0)
    noticed = [each for each in outcomes if each.kind == "notice"]
    for name, some, goal in (
        ("resumed, of those with notice", noticed, ">= 99"),
        ("resumed, of all", outcomes, ">= 94"),
    ):
        if some:
            yield Figure(name, _share([each.resumed_after is not None for each in some]), "%",
                         goal=goal)  # fmt: skip
    yield Figure("resumed on another host", _share([each.is_elsewhere for each in outcomes]), "%")
    asked = [each.is_free_in_time for each in outcomes if each.is_free_in_time is not None]
    if asked:
        yield Figure("cards free by the owner's deadline", _share(asked), "%", goal="100")
    twice = sum(each.twice_ms for each in outcomes) / 1000
    unbilled = sum(each.unbilled_ms for each in outcomes) / 1000
    yield Figure("granted seconds billed twice", twice, "s", goal="0", digits=3)
    yield Figure("granted seconds not billed", unbilled, "s", goal="0", digits=3)
    yield Figure("charged by the rule", _share([e.is_charged_right for e in outcomes]), "%")
    lost, requeue = sum(e.lost for e in outcomes), sum(e.requeue for e in outcomes)
    yield Figure("lost work", lost, "s", requeue, "preempt-and-requeue", goal="<= 34 %")
    for share, name in ((0.5, "p50"), (0.9, "p90"), (1.0, "most")):
        yield Figure(f"lost work, {name}", percentile([e.lost for e in outcomes], share), "s")
    for kind in KINDS:
        some = [each for each in outcomes if each.kind == kind]
        if not some:
            continue
        parts = (
            ("lost work", [each.lost for each in some]),
            ("free after", [each.free_after for each in some if each.free_after is not None]),
            ("goes on after", [e.resumed_after for e in some if e.resumed_after is not None]),
        )
        for name, seconds in parts:
            if seconds:
                yield Figure(f"{kind}: {name}, p50", percentile(seconds, 0.5), "s")


def _share(each: Sequence[bool]) -> float:
    return 100 * sum(each) / len(each)
