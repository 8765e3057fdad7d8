"""The plots of the page of departures, drawn from the figures kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.departures.figures import Measured, Row, known, share
from tests.departures.runs import LOADS, MAIN, of_load
from tests.simulation.plots import Axis, Series, line_plot, percent

STEPS = 20
"""A distribution is drawn through so many points."""
SOON_SECONDS = 60


def plots_of(figures: Mapping[str, Measured]) -> dict[str, str]:
    """Draw every plot for which there are figures."""
    found = {}
    if (main := figures.get(MAIN)) is not None:
        found["lost"] = _lost(main.rows)
        found["elsewhere"] = _elsewhere(main.rows)
    at = [(load, figures[of_load(load)].rows) for load in LOADS if of_load(load) in figures]
    if len(at) > 1:
        found["load"] = _by_load(at)
    return found


def _lost(rows: Sequence[Row]) -> str:
    return line_plot(
        "Work lost at a departure",
        "How many of the departures lost at most so many seconds of work. Nearly all lose less "
        "than a checkpoint is apart; silent hosts lose what they did unheard; preempt-and-requeue "
        "loses all that was done.",
        Axis("seconds of work lost, at most"),
        Axis("of the departures", percent),
        [
            Series("all", _spread([row.lost for row in rows])),
            Series("silence", _spread([row.lost for row in rows if row.kind == "silence"])),
            Series("preempt-and-requeue", _spread([row.done for row in rows])),
        ],
    )


def _elsewhere(rows: Sequence[Row]) -> str:
    silent = [row for row in rows if row.kind in ("power", "silence")]
    told = [row for row in rows if row.kind not in ("power", "silence")]
    return line_plot(
        "Time until work runs elsewhere",
        "How many of the departures ran elsewhere within so many seconds: from the owner's word "
        "or the fault, and from a host's last word where it left without one.",
        Axis("seconds until it runs elsewhere, at most"),
        Axis("of the departures", percent),
        [
            Series("told, or a GPU failed", [(0, 0), *_spread([row.after for row in told])]),
            Series("the host fell silent", _spread([row.after_word for row in silent])),
        ],
    )


def _by_load(at: Sequence[tuple[int, Sequence[Row]]]) -> str:
    return line_plot(
        "Work that went on, by load",
        "The share that went on before its deadline stays at the top while the hosts that stay "
        "have room, and falls where others ask for more than there is.",
        Axis("asked for by others, of the GPUs that stay", lambda load: f"{load:g} %"),
        Axis("of the departures", percent),
        [
            Series(
                "before its deadline",
                [(load, share(row.in_time for row in rows)) for load, rows in at],
            ),
            Series(
                f"within {SOON_SECONDS} s",
                [
                    (load, share((row.after or 1e9) <= SOON_SECONDS for row in rows))
                    for load, rows in at
                ],
            ),
        ],
        mark=(0.94, "goal: 94 %"),
    )


def _spread(values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return points of a distribution, (value, share that is at most it); None: never."""
    ordered, count = known(values), len(values)
    if not ordered:
        return [(0.0, 0.0)]
    steps = {min(len(ordered), max(1, round(count * step / STEPS))) for step in range(STEPS + 1)}
    return [(ordered[number - 1], number / count) for number in sorted(steps)]
