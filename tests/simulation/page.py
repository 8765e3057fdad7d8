"""The page of the manual that reports the replays: text around tables and plots of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.simulation import departures, openb_page
from tests.simulation.curves import plots_of
from tests.simulation.tables import share, table, went_on

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


def _of_the_product(figures: Row) -> dict[str, str]:
    alone, model, product = figures["alone"], figures["model"], figures["product"]
    return {
        "product_jobs": f"{figures['jobs']:,}",
        "product_hours": f"{figures['gpu_hours'] / 1000:,.0f} thousand",
        "product_days": f"{figures['days']:.0f}",
        "product_events": f"{figures['events']:,}",
        "product_minutes": f"{figures['minutes']:.0f}",
        "product_bids": f"{figures['counted']['bids']:,}",
        "product_leases": f"{figures['counted']['leases']:,}",
        "product_own": share(figures["counted"]["own leases"] / figures["counted"]["leases"]),
        "product_charged": f"{figures['charged'] / 1000:,.0f} thousand",
        "product_util": share(product["u_alloc"]),
        "product_useful": share(product["useful"]),
        "product_nodes": str(product["nodes"]),
        "product_alone_nodes": str(alone["nodes"]),
        "product_alone_util": share(alone["u_alloc"]),
        "product_p95": f"{product['wait_p95']:.1f}",
        "product_alone_p95": f"{alone['wait_p95']:.1f}",
        "product_gang_max": f"{product['gang_max']:.0f}",
        "product_alone_gang_max": f"{alone['gang_max'] / 60:.0f}",
        "product_saving": share(1 - product["cost"] / alone["cost"]),
        "product_lost": f"{product['lost_hours']:,.0f}",
        "model_lost": f"{model['lost_hours']:,.0f}",
        "product_wait": str(product["owners_wait"]),
        "product_stand": str(product["owners_stand"]),
        "model_stand": str(model["owners_stand"]),
        "product_harm": f"{product['harm']:+.1f}",
    }


def fair_for_all(rows: Sequence[Row]) -> Row:
    """Return the smallest fleet from which on no owner waits or stands longer than alone."""
    found = None
    for row in sorted(rows, key=lambda each: -int(each["nodes"])):
        if row["owners_wait"] or row["owners_stand"]:
            break
        found = row
    assert found is not None, "no fleet was fair for all"
    return found


def _claims(figures: dict[str, Any]) -> dict[str, str]:
    head = figures["headline"]
    base, market = head["baseline"], head["market"]
    fair = fair_for_all(figures["market-curve"]["rows"])
    kinder = figures["kinder"]
    least = smallest(figures["market-curve"]["rows"], base)
    full = figures["filler"]["rows"][-1]
    return {
        "jobs": f"{head['jobs']:,}",
        "gpu_hours": f"{head['gpu_hours'] / 1000:,.0f} thousand",
        "days": f"{head['days']:.0f}",
        "base_nodes": str(base["nodes"]),
        "base_sizes": ", ".join(str(size) for size in head["sized"]),
        "base_util": share(base["u_alloc"]),
        "market_nodes": str(market["nodes"]),
        "market_util": share(market["u_alloc"]),
        "saving": share(1 - market["cost"] / base["cost"]),
        "fair_nodes": str(fair["nodes"]),
        "fair_util": share(fair["u_alloc"]),
        "fair_saving": share(1 - fair["cost"] / base["cost"]),
        "owners_stand": str(market["owners_stand"]),
        "owners_wait": str(market["owners_wait"]),
        "backfill_nodes": str(kinder["backfill"]),
        "pausing_nodes": str(kinder["pausing"]),
        "pausing_by_waits_nodes": str(kinder["pausing_by_waits"]),
        "fair_saving_pausing": share(1 - fair["nodes"] / kinder["pausing"]),
        "least_nodes": str(least["nodes"]),
        "least_util": share(least["u_alloc"]),
        "least_saving": share(1 - least["cost"] / base["cost"]),
        "least_p95": f"{least['wait_p95']:.1f}",
        "least_stood_p95": f"{least['stood_p95']:.1f}",
        "least_stood_p99": f"{least['stood_p99'] / 60:.1f}",
        "market_stood_max": f"{market['stood_max'] / 60:.0f}",
        "base_stood_max": f"{base['stood_max'] / 60:.0f}",
        "base_stood_p99": f"{base['stood_p99'] / 60:.1f}",
        "filler_util": share(full["u_alloc"]),
        "filler_useful": share(full["useful"]),
        "filler_p95": f"{full['wait_p95']:.1f}",
        "filler_gang_max": f"{full['gang_max']:.0f}",
        "base_p95": f"{base['wait_p95']:.1f}",
        "base_gang_max": f"{base['gang_max'] / 60:.0f}",
        "harm": f"{market['harm']:+.1f}",
        "filler_harm": f"{full['harm']:+.1f}",
        **openb_page.claims(figures["openb"]),
        **_of_the_product(figures["product"]),
        "market_interactive": share(market["interactive"]),
        "base_interactive": share(base["interactive"]),
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
        "headline": table(SERVICE, (_service(name, row) for name, row in named.items())),
        "rules": table(SERVICE, (_service(row["name"], row) for row in figures["rules"]["rows"])),
        "curve": _curve_table(figures["market-curve"]["rows"]),
        "alone": table(
            SERVICE, (_service("every owner alone", row) for row in figures["static-curve"]["rows"])
        ),
        "burst": table(
            SERVICE + " | cloud GPU-h",
            (
                [*_service("market, burst", row), f"{row['cloud_hours']:,.0f}"]
                for row in figures["burst-curve"]["rows"]
            ),
        ),
        "product": _product_table(figures["product"], figures.get("product-filler")),
        "filler": _filler_table(figures["filler"]["rows"]),
        "departures": _departures_table(figures["departures"]["rows"]),
        "each": _owners_table(head),
        **openb_page.tables(figures["openb"]),
        "chronus": _chronus_table(figures["chronus"]["rows"]),
        "interruptions": _interruptions_table(
            {
                "market": head["market"],
                "with three copies of filler": figures["filler"]["rows"][-1],
                "the product": figures["product"]["product"],
            }
        ),
    }


def _product_table(plain: Row, filled: Row | None) -> str:
    """Return the product's rows. filled: with filler; None: not replayed yet."""
    named = _side_by_side("", plain)
    if filled is not None:
        named |= _side_by_side("with filler, ", filled)
    return table(SERVICE, (_service(name, row) for name, row in named.items()))


def _side_by_side(kind: str, figures: Row) -> dict[str, Row]:
    span = f"{figures['days']:.0f} days"
    return {
        f"every owner alone, {span}": figures["alone"],
        f"{kind or 'market, '}the model, {span}": figures["model"],
        f"**{kind or 'market, '}the product, {span}**": figures["product"],
    }


def _service(name: str, row: Row) -> list[str]:
    return [
        name,
        str(row["nodes"]),
        share(row["u_alloc"]),
        share(row["useful"]),
        f"{_span(row['wait_mean'])} / {_span(row['wait_p95'])}",
        share(row["late"]),
        f"{_span(row['stood_p95'])} / {_span(row['stood_p99'], digits=0)}",
        share(row["stood_late"]),
        f"{_span(row['gang_p95'], per=60)} / {_span(row['gang_max'], per=60)}",
        share(row["interactive"]),
        f"{row['cost'] / 1000:,.0f}",
    ]


def _owners_table(head: Row) -> str:
    columns = (
        "owner | nodes alone / in the market | jobs | alone: wait p95, min | over 15 min "
        "| market: wait p95, min | over 15 min | stood p95, min | over 15 min "
        "| stood ÷ own length, p95"
    )
    return table(
        columns,
        (
            [
                str(number),
                f"{alone} / {owned}",
                f"{row['jobs']:,}",
                f"{row['alone_p95']:.1f}",
                share(row["alone_late"]),
                f"{row['wait_p95']:.1f}",
                share(row["late"]),
                f"{row['stood_p95']:.1f}",
                share(row["stood_late"]),
                share(row["stood_part_p95"]),
            ]
            for number, (row, alone, owned) in enumerate(
                zip(head["each"], head["sized"], head["owned"], strict=True), 1
            )
        ),
    )


def _span(value: float | None, *, per: float = 1, digits: int = 1) -> str:
    """Write a time; None: what never came."""
    return "never" if value is None else f"{value / per:.{digits}f}"


def _curve_table(rows: Iterable[Row]) -> str:
    return table(
        SERVICE + " | owners who wait / stand longer",
        (
            [*_service("market", row), f"{row['owners_wait']} / {row['owners_stand']}"]
            for row in rows
        ),
    )


def _filler_table(rows: Iterable[Row]) -> str:
    head = (
        "copies | filler asks for | U_alloc | useful | owners' wait p95, min | over 15 min "
        "| stood p95, min | gang max, h | within quota, against alone, min "
        "| filler waits, median h | done in 14 days"
    )
    return table(
        head,
        (
            [
                str(row["copies"]),
                share(row["demand"]),
                share(row["u_alloc"]),
                share(row["useful"]),
                f"{row['wait_p95']:.1f}",
                share(row["late"]),
                f"{row['stood_p95']:.1f}",
                f"{row['gang_max'] / 60:.1f}",
                f"{row['harm']:+.1f}",
                f"{row['filler_wait_median'] / 60:.1f}",
                share(row["filler_done_in_14_days"]),
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
        for kind in departures.KINDS:
            count, *shares = row["interrupted"].get(kind, (0, 0.0, 0.0, 0.0))
            lines.append(
                [
                    str(row["nodes"]),
                    f"{row['rate']:g}",
                    "after 15 min" if row["burst"] else "no",
                    kind.removeprefix("left, "),
                    f"{count:,}",
                    *went_on(shares),
                    f"{row['lost_hours']:,.0f}",
                ]
            )
    return table(head, lines)


def _chronus_table(rows: Iterable[Row]) -> str:
    head = (
        "mix | run | nodes | demand ÷ owned | strict met | soft met at full value "
        "| value got | best effort done, p95 h | cost, thousand | cloud GPU-h"
    )
    return table(
        head,
        (
            [
                row["mix"],
                row["name"],
                str(row["nodes"]),
                share(row["load"]),
                share(row["strict_met"]),
                "–" if row["soft_met"] is None else share(row["soft_met"]),
                share(row["value"]),
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
    "interrupted": "a fresh job took the place of an interruptible lease",
    "window over": "it could not go on in place: others had the GPUs from then on",
}


def _interruptions_table(named: dict[str, Row]) -> str:
    head = "run | why | how many | on within 5 min | 30 min | 24 h"
    lines = []
    for name, row in named.items():
        for why, (count, *shares) in row["interrupted"].items():
            lines.append([name, WHY[why], f"{count:,}", *went_on(shares)])
    return table(head, lines)
