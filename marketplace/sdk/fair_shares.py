"""`offpeak quotas shares`: whose bids go first, level by level, with the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer

from . import quotas_requests
from .forms import percent
from .quotas import Market
from .session import session_of

app = quotas_requests.app

LEVELS = (
    ("who", "cohort or unit"),
    ("turns", "turn"),
    ("gpu_class", "class"),
    ("remembered_gpu_hours", "GPU-hours remembered"),
    ("weight_ppm", "weight", percent),
    ("share", "share"),
    ("before_the_next", "before the next"),
)
PLACES = (
    ("place", "place"),
    ("node", "unit"),
    ("gpu_class", "class"),
    ("remembered_gpu_hours", "GPU-hours remembered"),
    ("weight_ppm", "weight", percent),
    ("share", "share"),
    ("bids_waiting", "bids waiting"),
    ("before_the_next", "before the next"),
)


@app.command()
def shares(
    context: typer.Context,
    round_id: Annotated[UUID | None, typer.Option("--round", help="as it was in a round")] = None,
    market: Market = None,
) -> None:
    """Show which queues go first, with the calculation: cohorts, their members, then units."""
    session = session_of(context)
    found = session.client.get("quotas/shares", round=round_id, market=market)
    if session.printer.as_json:
        session.printer.json(found)
        return
    empty = "No quotas are set: price and time alone decide."
    levels = [] if found is None else found.get("levels", [])
    if any(each["is_cohort"] for each in levels):
        session.printer.table([_row(each) for each in levels], LEVELS, empty=empty)
    session.printer.table([] if found is None else found["places"], PLACES, empty=empty)
    if found is not None:
        session.printer.say(f"Half-life of use: {found['half_life_seconds']} s.")


def _row(level: Mapping[str, Any]) -> dict[str, Any]:
    """Return a level with its depth to be seen."""
    who = "\N{NO-BREAK SPACE}" * 2 * level["depth"] + level["node"]
    return {**level, "who": who, "turns": f"{level['turn']} of {level['beside']}"}
