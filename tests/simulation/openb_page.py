"""What the page reports of openb: an inventory filled, and fleets sized for equal service."""

from __future__ import annotations

from typing import Any

from tests.simulation.plots import Axis, Series, line_plot, percent
from tests.simulation.tables import share, table, went_on

Row = dict[str, Any]
SLICINGS = {
    "shares": "parts as asked (MPS, time slices)",
    "mig": "MIG instances",
    "whole": "whole GPUs only",
}


def claims(figures: Row) -> dict[str, str]:
    """Return the figures within sentences."""
    main = figures["rows"][0]
    alone, market, pooled = main["alone"], main["market"], main["pooled"]
    saved = [1 - row["market"]["cost"] / row["alone"]["cost"] for row in figures["rows"]]
    return {
        "openb_low": share(min(saved)),
        "openb_high": share(max(saved)),
        "openb_pods": f"{figures['pods']:,}",
        "openb_asked": f"{figures['asked']:,}",
        "openb_days": f"{figures['days']:.0f}",
        "openb_hours": f"{figures['gpu_hours']:,.0f}",
        "openb_parts": share(figures["parts"]),
        "openb_named": share(figures["named"]),
        "openb_owners": str(main["owners"]),
        "openb_alone_gpus": str(alone["gpus"]),
        "openb_market_gpus": str(market["gpus"]),
        "openb_alone_util": share(alone["u_alloc"]),
        "openb_market_util": share(market["u_alloc"]),
        "openb_saving": share(1 - market["cost"] / alone["cost"]),
        "openb_alone_models": _models(alone),
        "openb_market_models": _models(market),
        "openb_pooled_late": share(pooled["late"]),
        "openb_market_late": share(market["late"]),
    }


def tables(figures: Row) -> dict[str, str]:
    """Return the tables."""
    return {
        "openb": _fleets(figures["rows"]),
        "openb_interruptions": _interruptions(figures["rows"][0]["market"]),
        "filling": _filling(figures["filling"]),
    }


def _models(row: Row) -> str:
    return ", ".join(f"{count} {model}" for model, count in row["models"].items())


def _told(row: Row) -> str:
    said = [f"{row['owners']} owners by {row['by']}"]
    if row["whole"]:
        said.append("whole GPUs only")
    if not row["choosy"]:
        said.append("no model named")
    return ", ".join(said)


def _fleets(rows: list[Row]) -> str:
    head = (
        "who owns what | run | GPUs | U_alloc | stranded ÷ owned | wait p95, min | over 15 min "
        "| stood p95, min | over 15 min | longest first wait of eight GPUs, h | cost, thousand"
    )
    names = {
        "alone": "every owner alone",
        "pooled": "one pool, no market",
        "market": "**market**",
    }
    return table(
        head,
        (
            [
                _told(row),
                name,
                str(row[key]["gpus"]),
                share(row[key]["u_alloc"]),
                share(row[key]["stranded"]),
                f"{row[key]['wait_p95']:.1f}",
                share(row[key]["late"]),
                f"{row[key]['stood_p95']:.1f}",
                share(row[key]["stood_late"]),
                f"{row[key]['gang_max'] / 60:.1f}",
                f"{row[key]['cost'] / 1000:.1f}",
            ]
            for row in rows
            for key, name in names.items()
        ),
    )


WHY = {
    "reclaimed": "an owner below its quota took its GPUs back",
    "paused": "best effort past its firm hour, for a pod that found no room",
}


def _interruptions(row: Row) -> str:
    return table(
        "why | how many | on within 5 min | 30 min | 24 h",
        (
            [WHY[why], str(count), *went_on(shares)]
            for why, (count, *shares) in row["interrupted"].items()
        ),
    )


def _filling(rows: list[Row]) -> str:
    head = (
        "a part of a GPU is | hosts are | GPUs asked for, met | held | pods refused "
        "| of those that name a model | first refusal at | stranded ÷ owned"
    )
    return table(
        head,
        (
            [
                SLICINGS[row["slicing"]],
                "each owner's own" if row["alone"] else "**everybody's**",
                share(row["useful"]),
                share(row["held"]),
                share(row["refused"]),
                share(row["refused_named"]),
                share(row["first_refused_at"]),
                share(row["stranded"]),
            ]
            for row in rows
        ),
    )


def plots(figures: Row) -> dict[str, str]:
    """Return the plots."""
    shown = {
        ("shares", False): "market, parts",
        ("shares", True): "owners alone, parts",
        ("mig", False): "market, MIG",
        ("whole", False): "market, whole GPUs",
    }
    rows = {(row["slicing"], row["alone"]): row for row in figures["filling"]}
    return {
        "filling": line_plot(
            "GPUs asked for that found no place, as openb's pods fill its inventory",
            "With parts of GPUs given as asked, owners alone turn pods away long before the "
            "market does. MIG instances lose little until the inventory is nearly full; where "
            "every pod takes whole GPUs, nothing finds a place once nine tenths are asked for.",
            Axis("asked for so far ÷ GPUs owned", percent),
            Axis("asked for and not met ÷ GPUs owned", percent),
            [
                Series(name, [(asked, asked - met) for asked, met in rows[key]["curve"]])
                for key, name in shown.items()
            ],
        )
    }
