"""The synthetic week with work that may be paused: the log holds, and what was paused goes on."""

from __future__ import annotations

import pytest

from tests.marketplace.support.invariants import audit
from tests.simulation.closing import check_charges, check_ends
from tests.simulation.pausing_week import MONDAY, PausingWeek, came_of


@pytest.mark.soak
def test_work_is_paused_and_goes_on_and_every_charge_is_price_times_use() -> None:
    log = PausingWeek(13, MONDAY, pausing=True).live()

    came = came_of(log)
    assert came.pauses >= 10
    assert came.gone_on >= 0.9 * came.pauses
    assert came.long_met == 100
    audit(log)
    check_ends(log)
    check_charges(log)
