"""The plots of the page, drawn from the figures kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation import openb_page
from tests.simulation.plots import Axis, Series, line_plot, percent

Row = dict[str, Any]


def plots_of(figures: dict[str, Any]) -> dict[str, str]:
    """Draw every plot of the page."""
    base = figures["headline"]["baseline"]
    market, alone = figures["market-curve"]["rows"], figures["static-curve"]["rows"]
    burst = figures["burst-curve"]["rows"]
    nodes = Axis("nodes of eight GPUs", top=None)

    def lines(key: str, scale: float = 1.0) -> list[Series]:
        named = (("market", market), ("every owner alone", alone), ("market with burst", burst))
        return [
            Series(name, [(row["nodes"], row[key] * scale) for row in rows]) for name, rows in named
        ]

    return {
        "utilisation": line_plot(
            "Utilisation by size of the fleet",
            "Utilisation falls as the fleet grows. The market gives equal service on a fleet "
            "less than half as large as the right-sized baseline, and so at over twice its use.",
            nodes,
            Axis("U_alloc", percent),
            lines("u_alloc"),
            mark=(base["u_alloc"], f"right-sized baseline, {base['nodes']} nodes"),
        ),
        "wait": line_plot(
            "p95 wait for a first start by size of the fleet",
            "Owners alone wait for hours once their fleet is smaller than about 200 nodes; in "
            "the market the p95 stays at minutes down to less than half of that.",
            nodes,
            Axis("p95 wait, minutes (cut off at 90)", top=90.0),
            lines("wait_p95"),
            mark=(base["wait_p95"], f"right-sized baseline, {base['wait_p95']:.1f} min"),
        ),
        "stood": line_plot(
            "p95 of all time a job stood still, by size of the fleet",
            "Counted with every wait after an interruption the market's curve rises earlier, "
            "and still lies far to the left of the owners' alone.",
            nodes,
            Axis("p95 stood still, minutes (cut off at 90)", top=90.0),
            lines("stood_p95"),
            mark=(base["stood_p95"], f"right-sized baseline, {base['stood_p95']:.1f} min"),
        ),
        "cost": line_plot(
            "Cost by size of the fleet",
            "Cost is the fleet's price, plus twice that for each cloud hour: a straight line for "
            "the market; with bursting it bends up again where the fleet gets too small.",
            nodes,
            Axis("cost, thousand own GPU-hours"),
            lines("cost", 1 / 1000),
            mark=(base["cost"] / 1000, f"right-sized baseline, {base['cost'] / 1000:,.0f}"),
        ),
        "departures": _departures_plot(figures["departures"]["rows"]),
        **openb_page.plots(figures["openb"]),
    }


def _departures_plot(rows: Sequence[Row]) -> str:
    def within_half_hour(row: Row) -> float:
        kinds = [row["interrupted"][kind] for kind in row["interrupted"] if "left" in kind]
        total = sum(kind[0] for kind in kinds)
        return float(sum(kind[0] * kind[2] for kind in kinds) / total) if total else 1.0

    named: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"{row['nodes']} nodes{', burst' if row['burst'] else ''}"
        named.setdefault(name, []).append((row["rate"], within_half_hour(row)))
    return line_plot(
        "Work that goes on within half an hour after its node left",
        "The share of interrupted work that goes on within half an hour, by how often nodes "
        "leave: higher on the larger fleet, and with bursting.",
        Axis("departures per node and day"),
        Axis("went on within 30 minutes", percent),
        [Series(name, points) for name, points in named.items()],
    )
