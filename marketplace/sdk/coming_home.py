"""`offpeak leases home`: whether work in clouds moves home, and what moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .forms import money
from .session import session_of
from .spoken import NotUnderstood

PERCENT_MAX = 100


def _became(_: object, entry: Mapping[str, Any]) -> str:
    if entry.get("moved"):
        return f"moved to {entry['home_lease_id']}"
    return f"stayed: {entry['reason']}" if entry.get("ended_at") else "under way"


MOVES = (
    ("lease_id", "lease in the cloud"),
    ("moved", "what came of it", _became),
    ("asked_at", "asked"),
    ("cloud", "rest in the cloud", money),
    ("move", "the move itself", money),
    ("saved", "saved", money),
)


def home(
    context: typer.Context,
    moves: Annotated[
        bool | None,
        typer.Option("--move/--stay", help="let your organisation's work in clouds move home"),
    ] = None,
    margin: Annotated[
        int | None,
        typer.Option("--margin", help="least saving in percent of what the rest costs there"),
    ] = None,
) -> None:
    """Show whether work in clouds moves home and what moved; or say that it does."""
    session = session_of(context)
    after = None
    if margin is not None and not 0 <= margin <= PERCENT_MAX:
        raise NotUnderstood(f"--margin {margin}: between 0 and {PERCENT_MAX} percent")
    if moves is not None or margin is not None:
        known = session.client.get("burst/home-policy")
        said = {
            "moves": known["moves"] if moves is None else moves,
            "margin_percent": known["margin_percent"] if margin is None else margin,
        }
        after = session.client.put("burst/home-policy", said)["position"]
    policy = session.client.get("burst/home-policy", after=after)
    tried = list(session.client.all("burst/home-moves"))
    if session.printer.as_json:
        session.printer.json({"policy": policy, "moves": tried})
        return
    session.printer.say(sentence(policy))
    session.printer.table(tried, MOVES, empty="Nothing has moved yet.")


def sentence(policy: Mapping[str, Any]) -> str:
    """Return a policy in words."""
    if not policy["platform_moves"]:
        return "This market moves no work home."
    if not policy["moves"]:
        return "Work in clouds stays there until it ends."
    margin = policy["margin_percent"]
    percent = policy["platform_margin_percent"] if margin is None else margin
    return f"Work in clouds moves home where that saves {percent} % of what its rest costs there."
