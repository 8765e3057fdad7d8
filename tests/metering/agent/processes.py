"""Agents in processes of their own, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.forking import Fork
from tests.metering.agent import doomed
from tests.metering.agent.market import Market

DEADLINE_SECONDS = 60.0


def until(ask: Callable[[], object], *, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not ask():
        assert time.monotonic() < deadline, f"in time: {what}"
        time.sleep(0.02)


def launch(market: Market, state_dir: Path, doom: str) -> Fork:
    return Fork(doomed.run, market.url, state_dir, doom, log=state_dir.with_suffix(".log"))
