"""The page of the manual that reports the replays: text around tables and plots of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.simulation.plots import Axis, Series, line_plot, percent

DOCS = Path(__file__).parents[2] / "config" / "docs"
TEXT = Path(__file__).parent / "simulation.md.txt"
GPUS = "GPUs owned"
Row = dict[str, Any]


def write(figures: dict[str, Any]) -> None:
    """Write the page and its plots from the figures kept."""
    (DOCS / "simulation.md").write_text(text_of(figures))
    (DOCS / "simulation").mkdir(exist_ok=True)
    for name, drawing in plots_of(figures).items():
        (DOCS / "simulation" / f"{name}.svg").write_text(drawing)


def text_of(figures: dict[str, Any]) -> str:
    """Fill the figures into the text."""
    filled = TEXT.read_text()
    for name, value in {**_tables(figures), **_claims(figures)}.items():
        filled = filled.replace("{{" + name + "}}", value)
    assert "{{" not in filled, "the text asks for a figure that is not there"
    return filled


# --- figures within sentences -----------------------------------------------------------------


def equal_service(row: Row, baseline: Row, kind: str) -> bool:
    """Tell if p95 and the share over 15 minutes are within a tenth of the baseline's."""
    p95, late = f"{kind}_p95", "late" if kind == "wait" else "stood_late"
    return bool(row[p95] <= 1.1 * baseline[p95] and row[late] <= 1.1 * baseline[late])


def smallest(rows: Sequence[Row], baseline: Row) -> Row:
    """Return the smallest fleet from which on service is equal, by both ways to count waits."""
    found = None
    for row in sorted(rows, key=lambda each: -int(each["nodes"])):
        if not all(equal_service(row, baseline, kind) for kind in ("wait", "stood")):
            break
        found = row
    assert found is not None, "no fleet gave equal service"
    return found


def _claims(figures: dict[str, Any]) -> dict[str, str]:
    head = figures["headline"]
    base, market = head["baseline"], head["market"]
    least = smallest(figures["market-curve"]["rows"], base)
    full = figures["filler"]["rows"][-1]
    return {
        "jobs": f"{head['jobs']:,}",
        "gpu_hours": f"{head['gpu_hours'] / 1000:,.0f} thousand",
        "days": f"{head['days']:.0f}",
        "base_nodes": str(base["nodes"]),
        "base_sizes": ", ".join(str(size) for size in head["sized"]),
        "base_util": _share(base["u_alloc"]),
        "market_nodes": str(market["nodes"]),
        "market_util": _share(market["u_alloc"]),
        "saving": _share(1 - market["cost"] / base["cost"]),
        "least_nodes": str(least["nodes"]),
        "least_util": _share(least["u_alloc"]),
        "least_saving": _share(1 - least["cost"] / base["cost"]),
        "least_p95": f"{least['wait_p95']:.1f}",
        "least_stood_p95": f"{least['stood_p95']:.1f}",
        "least_stood_p99": f"{least['stood_p99'] / 60:.1f}",
        "market_stood_max": f"{market['stood_max'] / 60:.0f}",
        "base_stood_max": f"{base['stood_max'] / 60:.0f}",
        "base_stood_p99": f"{base['stood_p99'] / 60:.1f}",
        "filler_util": _share(full["u_alloc"]),
        "filler_useful": _share(full["useful"]),
        "filler_p95": f"{full['wait_p95']:.1f}",
        "filler_gang_max": f"{full['gang_max']:.0f}",
        "base_p95": f"{base['wait_p95']:.1f}",
        "base_gang_max": f"{base['gang_max'] / 60:.0f}",
        "harm": f"{market['harm']:+.1f}",
        "filler_harm": f"{full['harm']:+.1f}",
        "market_interactive": _share(market["interactive"]),
        "base_interactive": _share(base["interactive"]),
    }


# --- tables -----------------------------------------------------------------------------------

SERVICE = (
    "run | nodes | U_alloc | useful | wait mean / p95, min | over 15 min "
    "| stood p95 / p99, min | over 15 min | gang p95 / max, h | begun in 60 s | cost, thousand"
)


def _tables(figures: dict[str, Any]) -> dict[str, str]:
    head = figures["headline"]
    named = {
        "every owner alone, right-sized": head["baseline"],
        "one pool, first come, no market": head["pooled"],
        "market without pausing and moving": head["no_pausing"],
        "**market**": head["market"],
    }
    return {
        "headline": _table(SERVICE, (_service(name, row) for name, row in named.items())),
        "rules": _table(SERVICE, (_service(row["name"], row) for row in figures["rules"]["rows"])),
        "curve": _table(
            SERVICE, (_service("market", row) for row in figures["market-curve"]["rows"])
        ),
        "alone": _table(
            SERVICE, (_service("every owner alone", row) for row in figures["static-curve"]["rows"])
        ),
        "burst": _table(
            SERVICE + " | cloud GPU-h",
            (
                [*_service("market, burst", row), f"{row['cloud_hours']:,.0f}"]
                for row in figures["burst-curve"]["rows"]
            ),
        ),
        "filler": _filler_table(figures["filler"]["rows"]),
        "departures": _departures_table(figures["departures"]["rows"]),
        "chronus": _chronus_table(figures["chronus"]["rows"]),
        "interruptions": _interruptions_table(
            {"market": head["market"], "with three copies of filler": figures["filler"]["rows"][-1]}
        ),
    }


def _service(name: str, row: Row) -> list[str]:
    return [
        name,
        str(row["nodes"]),
        _share(row["u_alloc"]),
        _share(row["useful"]),
        f"{row['wait_mean']:.1f} / {row['wait_p95']:.1f}",
        _share(row["late"]),
        f"{row['stood_p95']:.1f} / {row['stood_p99']:.0f}",
        _share(row["stood_late"]),
        f"{row['gang_p95'] / 60:.1f} / {row['gang_max'] / 60:.1f}",
        _share(row["interactive"]),
        f"{row['cost'] / 1000:,.0f}",
    ]


def _filler_table(rows: Iterable[Row]) -> str:
    head = (
        "copies | filler asks for | U_alloc | useful | owners' wait p95, min | over 15 min "
        "| stood p95, min | gang max, h | within quota, against alone, min "
        "| filler waits, median h | done in 14 days"
    )
    return _table(
        head,
        (
            [
                str(row["copies"]),
                _share(row["demand"]),
                _share(row["u_alloc"]),
                _share(row["useful"]),
                f"{row['wait_p95']:.1f}",
                _share(row["late"]),
                f"{row['stood_p95']:.1f}",
                f"{row['gang_max'] / 60:.1f}",
                f"{row['harm']:+.1f}",
                f"{row['filler_wait_median'] / 60:.1f}",
                _share(row["filler_done_in_14_days"]),
            ]
            for row in rows
        ),
    )


def _departures_table(rows: Iterable[Row]) -> str:
    head = (
        "nodes | leave per node and day | burst | kind | interrupted "
        "| on within 5 min | 30 min | 24 h | lost GPU-h (all causes)"
    )
    lines = []
    for row in rows:
        for kind in ("left, announced", "left, sudden"):
            count, *shares = row["interrupted"].get(kind, (0, 0.0, 0.0, 0.0))
            lines.append(
                [
                    str(row["nodes"]),
                    f"{row['rate']:g}",
                    "after 15 min" if row["burst"] else "no",
                    kind.removeprefix("left, "),
                    f"{count:,}",
                    *(_share(share) for share in shares),
                    f"{row['lost_hours']:,.0f}",
                ]
            )
    return _table(head, lines)


def _chronus_table(rows: Iterable[Row]) -> str:
    head = (
        "mix | run | nodes | demand ÷ owned | strict met | soft met at full value "
        "| value got | best effort done, p95 h | cost, thousand | cloud GPU-h"
    )
    return _table(
        head,
        (
            [
                row["mix"],
                row["name"],
                str(row["nodes"]),
                _share(row["load"]),
                _share(row["strict_met"]),
                "–" if row["soft_met"] is None else _share(row["soft_met"]),
                _share(row["value"]),
                "–" if row["best_took_p95"] is None else f"{row['best_took_p95']:.0f}",
                f"{row['cost'] / 1000:,.0f}",
                f"{row['cloud_hours']:,.0f}",
            ]
            for row in rows
        ),
    )


WHY = {
    "reclaimed": "an owner below its quota took its node back",
    "paused": "past its firm hour on another's node, for work that had not had one",
    "moved": "moved, so that a gang's nodes lie together",
    "filler": "filler gave way",
}


def _interruptions_table(named: dict[str, Row]) -> str:
    head = "run | why | how many | on within 5 min | 30 min | 24 h"
    lines = []
    for name, row in named.items():
        for why, (count, *shares) in row["interrupted"].items():
            lines.append([name, WHY[why], f"{count:,}", *(_share(share) for share in shares)])
    return _table(head, lines)


def _table(head: str, rows: Iterable[Sequence[str]]) -> str:
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


# --- plots ------------------------------------------------------------------------------------


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
