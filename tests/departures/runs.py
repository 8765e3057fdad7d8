"""The runs of the page: two hundred departures with room, and some at each load."""

from __future__ import annotations

from tests.departures.ground import Pace
from tests.departures.running import Run

LOADS = (40, 60, 80, 95, 110, 130)
"""What others ask for, in hundredths of the GPUs that stay."""
MAIN = "main"
SHIPPED = "half-an-hour"
HALF_AN_HOUR = 1_800


def of_load(load: int) -> str:
    """Return the name of the run at a load."""
    return f"load-{load:03}"


RUNS: dict[str, Run] = {
    MAIN: Run(MAIN, 200),
    **{
        of_load(load): Run(
            of_load(load), 24, seed=100 + load, load=load / 100, room=16, stay_seconds=20.0
        )
        for load in LOADS
    },
    SHIPPED: Run(
        SHIPPED,
        3,
        of_gpus=0,
        of_host=("power", "silence"),
        pace=Pace(
            gone_seconds=HALF_AN_HOUR, slack_seconds=4 * HALF_AN_HOUR, duration_seconds=3_600
        ),
    ),
}
