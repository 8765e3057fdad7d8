"""What an agent has delivered of a lease: without gap or overlap, and all of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from metering.agent.wire import Interval
from tests.metering.agent.conftest import Rig


def granted(intervals: list[Interval]) -> int:
    for earlier, later in pairwise(intervals):
        assert earlier.end_ms == later.start_ms
    return sum(each.granted_ms for each in intervals)


def sent(rig: Rig, rounds: int = 100) -> None:
    """Let the agent deliver all it has; its pauses after failures end with time."""
    for _ in range(rounds):
        if not list(rig.agent.state.waiting()):
            return
        rig.step()
    pytest.fail("the agent still holds something back")
