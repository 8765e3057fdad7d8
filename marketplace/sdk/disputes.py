"""`offpeak disputes`: contested charges, what is said about them, and how they are decided."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .session import Yes, confirm, session_of
from .spoken import length_of

app = typer.Typer(help="Contested charges: list, open, say, resolve.", no_args_is_help=True)

MILLIS_PER_HOUR = 3_600_000


def _hours(value: Any, entry: Any) -> str:
    return f"{int(value) / MILLIS_PER_HOUR:.4f}"


def _opener(value: Any, entry: Any) -> str:
    return "its two meters" if value is None else str(value)


LIST = (
    ("state", "state"),
    ("contested", "contested", money),
    ("starts_at", "use from"),
    ("lease_id", "lease"),
    ("decide_by", "decided by"),
    ("dispute_id", "id"),
)
ONE = (
    *LIST,
    ("ends_at", "use to"),
    ("entry_id", "charge"),
    ("charged_millis", "GPU-hours charged", _hours),
    ("used_millis", "GPU-hours not contested", _hours),
    ("reason", "reason"),
    ("opened_by", "opened by", _opener),
    ("opened_at", "opened"),
    ("given_back", "given back", money),
    ("decision", "decision"),
    ("decided_by", "decided by person"),
    ("decided_at", "decided"),
)
SAID = (("at", "at"), ("tenant_id", "on behalf of"), ("said_by", "by"), ("text", "said"))

Dispute = Annotated[UUID, typer.Argument(help="the id of a dispute")]
Reason = Annotated[str, typer.Option("--reason", help="why, for both sides")]


@app.command("list")
def list_disputes(
    context: typer.Context,
    only_open: Annotated[bool, typer.Option("--open", help="only those to be decided")] = False,
) -> None:
    """List disputes that you are part of; the platform's finance sees all."""
    session = session_of(context)
    found = session.client.all("disputes")
    if only_open:
        found = (each for each in found if each["state"] == "open")
    session.printer.table(found, LIST, empty="No disputes.")


@app.command()
def show(context: typer.Context, dispute: Dispute) -> None:
    """Show a dispute and what was said about it."""
    session = session_of(context)
    found = session.client.get(f"disputes/{dispute}")
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.facts(found, ONE)
    session.printer.table(found["statements"], SAID, empty="Nothing was said.")


@app.command("open")
def open_dispute(
    context: typer.Context,
    charge: Annotated[UUID, typer.Argument(help="the id of the charge, as the statement has it")],
    used: Annotated[
        str, typer.Option("--used", help="GPU-time that is not contested: 0s, 45m, 1h30m")
    ],
    reason: Reason,
) -> None:
    """Contest the charge of a usage window; what is contested is set aside."""
    session = session_of(context)
    asked = {
        "entry_id": str(charge),
        "used_millis": length_of(used) * 1000,
        "reason": reason,
    }
    done = session.client.post("disputes", asked)
    session.printer.done(done, f"Opened dispute {done['dispute_id']}.")


@app.command()
def say(
    context: typer.Context,
    dispute: Dispute,
    text: Annotated[str, typer.Argument(help="what both sides and finance are to read")],
) -> None:
    """Say something about a dispute that you are part of."""
    session = session_of(context)
    done = session.client.post(f"disputes/{dispute}/statements", {"text": text})
    session.printer.done(done, "Said.")


@app.command()
def resolve(
    context: typer.Context,
    dispute: Dispute,
    reason: Reason,
    uphold: Annotated[
        bool,
        typer.Option(
            "--uphold/--dismiss", help="give it back to who paid, or let the charge stand"
        ),
    ],
    part: Annotated[
        str | None, typer.Option("--part", help="give back only so much of it, such as 1.25")
    ] = None,
    yes: Yes = False,
) -> None:
    """Decide a dispute; for finance people of the platform that are no party to it."""
    session = session_of(context)
    if not uphold and part is not None:
        raise typer.BadParameter("--part goes with --uphold")
    asked: dict[str, Any] = {"reason": reason}
    how = "uphold" if uphold else "dismiss"
    if part is not None:
        asked["given_back"] = part
    what = f"{how} dispute {dispute}" + (f", giving back {part}" if part else "")
    confirm(session, f"{what[0].upper()}{what[1:]}?", yes=yes)
    done = session.client.post(f"disputes/{dispute}/{how}", asked)
    session.printer.done(done, "Decided.")
