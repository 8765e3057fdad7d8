"""`offpeak quotas try-all` and `set-all`: several policies at once, from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from . import fair_shares
from .forms import percent
from .quotas import CHANGES, NO_PLACE, PLACED, Market, Why, places_of
from .session import session_of
from .spoken import NotUnderstood
from .whole_numbers import whole

app = fair_shares.app

JUDGED = (
    ("kind", "what"),
    ("id", "which"),
    ("who", "who"),
    ("gpu_models", "GPUs"),
    ("before", "before"),
    ("after", "after"),
)
FIGURES = (("figure", "figure"), ("again", "present rules"), ("variant", "with them"))
SHOWN = (
    "grants", "utilisation_ppm", "welfare", "owners", "consumer_surplus", "wait_mean_seconds",
    "wait_p95_seconds", "jain_ppm", "jain_cohorts_ppm", "interrupted", "burst_spend",
)  # fmt: skip
PARTIES = (
    ("side", "side"),
    ("who", "who"),
    ("fares", "fares"),
    ("before.gpu_seconds", "GPU-seconds"),
    ("after.gpu_seconds", "with them"),
    ("before.money", "gains or earns"),
    ("after.money", "with them"),
)
LONG_SECONDS = 600.0
"""How long a market may work on a trial, or on hours of it run again."""
PolicyFile = Annotated[
    Path,
    typer.Argument(
        help='a JSON list of policies, each with its kind and fields, as in [{"kind": "weight", '
        '"node": "…", "weight_ppm": 2000000}]; "-" reads standard input',
        allow_dash=True,
    ),
]


@app.command("try-all")
def try_all(
    context: typer.Context,
    file: PolicyFile,
    days: Annotated[
        int | None, typer.Option(help="look back so far at who may do what", parser=whole(1, 31))
    ] = None,
    hours: Annotated[
        int | None, typer.Option(help="run the last hours again with them", parser=whole(1, 168))
    ] = None,
    market: Market = None,
) -> None:
    """Say what several policies would change together, without setting them."""
    session = session_of(context)
    about: dict[str, Any] = {"policies": _read(file)}
    if market is not None:
        about["market"] = market
    looks = about if days is None else {**about, "days": days}
    found = session.client.ask("quotas/trials", looks, timeout_seconds=LONG_SECONDS)
    ran = None
    if hours is not None:
        again = {**about, "hours": hours}
        ran = session.client.ask("lab", again, timeout_seconds=LONG_SECONDS)
    if session.printer.as_json:
        session.printer.json(found if ran is None else {"now": found, "hours": ran})
        return
    changes = [
        {**each, "id": each.get("bid_id") or each.get("lease_id")}
        for each in (*found["bid_changes"], *found["lease_changes"])
    ] + [_undisturbed(each) for each in found.get("run_changes", ())]
    session.printer.table(changes, CHANGES, empty="No bid and no lease would fare otherwise.")
    before, after = found["admitted_before"], found["admitted_after"]
    session.printer.say(f"Of {found['bids']} open bids {before} fit now, {after} would.")
    session.printer.table(places_of(found), PLACED, empty=NO_PLACE)
    if found.get("past") is not None:
        nothing = "In the last days nothing would have fared otherwise."
        session.printer.table(found["past"]["changes"], JUDGED, empty=nothing)
    if ran is not None:
        figures = [
            _figure(name, ran["again"].get(name), ran["variant"].get(name)) for name in SHOWN
        ]
        session.printer.table(figures, FIGURES, empty="")
        session.printer.table(ran["parties"], PARTIES, empty="No participants.")


@app.command("set-all")
def set_all(context: typer.Context, file: PolicyFile, why: Why = "", market: Market = None) -> None:
    """Set several policies at once: all of them, or none if one is refused."""
    session = session_of(context)
    body: dict[str, Any] = {"policies": _read(file), "why": why}
    if market is not None:
        body["market"] = market
    session.printer.json(session.client.post("quotas/policies", body))


def _figure(name: str, again: Any, variant: Any) -> dict[str, Any]:
    """Return a row of the comparison: shares in percent."""
    if not name.endswith("_ppm"):
        return {"figure": name, "again": again, "variant": variant}
    title = name.removesuffix("_ppm")
    return {"figure": title, "again": percent(again, {}), "variant": percent(variant, {})}


def _undisturbed(change: dict[str, Any]) -> dict[str, Any]:
    """Return until when other bids may not interrupt a lease, as the table says it."""
    said = {
        name: f"undisturbed until {change[name]}" if change[name] else "may be interrupted"
        for name in ("before", "after")
    }
    return {**change, **said, "id": change["lease_id"]}


def _read(file: Path) -> list[Any]:
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
        policies = json.loads(text)
    except (OSError, ValueError) as error:
        raise NotUnderstood(f"{file} is no JSON list of policies: {error}") from None
    if not isinstance(policies, list):
        raise NotUnderstood(f"{file} is no JSON list of policies.")
    return policies
