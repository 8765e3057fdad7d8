"""Several engines on one market, two of them without a lock: no GPU is granted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import FIRST_STORE
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import ROOT, Installation, until

REGION = "race"
GPUS = 6
BIDS = 16
"""More than GPUs: those that come later queue up on the same GPUs, one after the other."""
QUERY = f"gpu=V100 region={REGION}"

pytestmark = pytest.mark.parametrize("market", FIRST_STORE, indirect=True, scope="package")


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Ada's host with six GPUs, its agent at work."""
    machine = register(market, "ada", REGION, tmp_path)
    machine.start_agent("--simulate", f"V100:{GPUS}")
    yield machine
    machine.retire()


@contextmanager
def unguarded(market: Installation) -> Iterator[subprocess.Popen[str]]:
    """Run an engine that heeds no lock; it has folded the market once when this begins."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.journeys.unguarded_engine"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=market.environment,
    ) as engine:
        try:
            assert engine.stdout is not None
            assert engine.stdout.readline() == "clearing\n"
            yield engine
        finally:
            engine.kill()


def test_engines_that_race_grant_every_gpu_once(market: Installation, machine: Machine) -> None:
    market.start("engine", under="engine-in-line")
    try:
        with unguarded(market) as one, unguarded(market) as other:
            gpus = machine.gpus()
            with ThreadPoolExecutor(4) as pool:
                placing = [pool.submit(market.bid, "grace", QUERY, []) for _ in range(BIDS)]
                machine.list_for(1, floor="0.50", gpus=gpus)
                bids = {each.result() for each in placing}
            until(lambda: len(_leased(market, bids)) >= BIDS, why="not every bid is filled")
            results = [_last_line(engine) for engine in (one, other)]
    finally:
        market.end("engine-in-line")

    assert all(each["passes"] > 1 for each in results)
    granted = _leased(market, bids)
    assert Counter(lease["bid_id"] for lease in granted) == Counter(bids)
    for gpu in gpus:
        spans = sorted(_span(lease) for lease in granted if gpu in lease["gpu_uuids"])
        assert len(spans) >= BIDS // GPUS, "the bids do not fill the GPUs"
        for (_, ends_at), (starts_at, _) in pairwise(spans):
            assert ends_at <= starts_at, f"{gpu} is leased twice at one instant: {spans}"
    with market.client("grace") as api:
        for lease in granted:
            api.delete(f"leases/{lease['id']}")
    assert "ok   I1" in market.manage("doctor", "--quick").out


def _span(lease: dict[str, Any]) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(lease["starts_at"]), datetime.fromisoformat(lease["ends_at"])


def _last_line(engine: subprocess.Popen[str]) -> dict[str, int]:
    """End an engine; return what it counted. Before that it logs when it was overtaken."""
    out, _ = engine.communicate("")
    counted: dict[str, int] = json.loads(out.splitlines()[-1])
    return counted


def _leased(market: Installation, bids: set[str]) -> list[dict[str, Any]]:
    with market.client("grace") as api:
        return [lease for lease in api.all("leases") if lease["bid_id"] in bids]
