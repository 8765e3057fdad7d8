"""`offpeak run` of an empty command, from Enter to its exit: bid, lease, start, end and bill.

A whole market in its processes, at the pace of one in earnest, and an agent that runs real work;
beside it the command line alone, which starts, asks the market one thing and ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from django.conf import settings

from config.env import Env
from tests.benchmarks.figures import Figure
from tests.journeys.hosts import CONSUMER, register
from tests.journeys.installation import Installation

REGION = "benchmarks"
TURNS = 7
RUN = ("run", "--needs", f"region={REGION}", "--for", "10m", "--max", "2", "--", "/bin/true")
ASKS = ("leases", "list")
PACE = {"round_seconds", "agent_sample_seconds", "agent_poll_seconds"}
"""Settings that are as the product has them, and not as tests do."""


def run() -> Iterator[Figure]:
    """Run both in turns; the first of each is not counted."""
    with TemporaryDirectory(prefix="offpeak-run-") as folder, _place(Path(folder)) as market:
        alone, took = [], []
        for _ in range(1 + TURNS):
            alone.append(_milliseconds(market, *ASKS))
            took.append(_milliseconds(market, *RUN))
    beside = median(alone[1:])
    name = "offpeak run of an empty command"
    yield Figure("the command line and one request, p50", beside, "ms", digits=0)
    yield Figure(
        f"{name}, p50", median(took[1:]), "ms", beside, "one request", goal="<= 4,000 ms", digits=0
    )
    yield Figure(f"{name}, slowest of {TURNS}", max(took[1:]), "ms", digits=0)


@contextmanager
def _place(folder: Path) -> Iterator[Installation]:
    os.environ.setdefault("OFFPEAK_KERNELS", str(settings.KERNELS))
    pace = {
        f"OFFPEAK_{each.name.upper()}": str(each.default)
        for each in fields(Env)
        if each.name in PACE
    }
    market = Installation(folder / "home", pace)
    try:
        market.found()
        market.start_all()
        machine = register(market, "ada", REGION, folder)
        machine.start_agent("--simulate", "L4:1")
        machine.list_for(2, floor="0.50", gpus=machine.gpus())
        yield market
        machine.retire()
    finally:
        market.end_all()


def _milliseconds(market: Installation, *words: str) -> float:
    """Return how long a command of a consumer took."""
    known = {"OFFPEAK_SERVER": market.url, "OFFPEAK_TOKEN": market.tokens[CONSUMER]}
    began = time.monotonic()
    done = market.run([sys.executable, "-m", "marketplace.sdk", *words], known)
    seconds = time.monotonic() - began
    assert done.code == 0, f"{done.err}\n{market.troubles()}"
    return 1000 * seconds
