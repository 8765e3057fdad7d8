"""`offpeak earnings` and `offpeak payouts`: what owners earned, and how they are paid."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .session import Session, Yes, confirm, session_of

app = typer.Typer(
    help="What owners are owed, and each payout from request to bank.", no_args_is_help=True
)

MILLIS_PER_HOUR = 3_600_000


def _hours(value: Any, entry: Any) -> str:
    return f"{int(value) / MILLIS_PER_HOUR:.2f}" if value else "-"


EARNED = (
    ("period", "month"),
    ("kind", "what"),
    ("lease_id", "lease"),
    ("sku", "GPU"),
    ("gpu_milliseconds", "GPU-hours", _hours),
    ("gross", "consumers paid", money),
    ("fee", "fee", money),
    ("amount", "earned", money),
)
OWED = (
    ("account_id", "earnings"),
    ("tenant_id", "owner"),
    ("earned", "earned", money),
    ("paid", "paid out", money),
    ("details", "bank account"),
    ("proposed", "waits to be confirmed"),
)
LIST = (
    ("period", "settlement"),
    ("state", "state"),
    ("amount", "amount", money),
    ("requested_at", "requested"),
    ("reference", "bank's reference"),
    ("payout_id", "id"),
)
ONE = (
    *LIST,
    ("opening", "owed before", money),
    ("closing", "owed after", money),
    ("held_back", "held back", money),
    ("approvals_needed", "approvals needed"),
    ("file_id", "bank file"),
    ("paid_on", "paid on"),
    ("reason", "reason"),
)
FILES = (
    ("message_id", "file"),
    ("format", "format"),
    ("payouts", "payouts"),
    ("total", "control sum", money),
    ("at", "written"),
    ("file_id", "id"),
)

Payout = Annotated[UUID, typer.Argument(help="the id of a payout")]
Reason = Annotated[str, typer.Option("--reason", help="why, for whoever reads it later")]
Month = Annotated[str | None, typer.Option("--period", help="a month such as 2026-11; else all")]


def earnings(context: typer.Context, period: Month = None) -> None:
    """List what was earned by month, kind and lease."""
    session = session_of(context)
    asked = {} if period is None else {"period": period}
    found = session.client.get("earnings", **asked)["data"]
    session.printer.table(found, EARNED, empty="Nothing was earned.")


@app.command()
def owed(context: typer.Context) -> None:
    """List what owners are owed, and the bank account that they are paid to."""
    session = session_of(context)
    session.printer.table(session.client.all("payees"), OWED, empty="Nothing is owed.")


@app.command("list")
def list_payouts(context: typer.Context) -> None:
    """List payouts, the newest first."""
    session = session_of(context)
    session.printer.table(session.client.all("payouts"), LIST, empty="No payouts.")


@app.command()
def show(context: typer.Context, payout: Payout) -> None:
    """Show a payout and every line of its statement."""
    session = session_of(context)
    found = session.client.get(f"payouts/{payout}/statement")
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.facts(found["payout"], ONE)
    session.printer.table(found["data"], EARNED, empty="No lines.")


@app.command()
def settle(
    context: typer.Context,
    earnings: Annotated[UUID, typer.Argument(help="the id of an owner's earnings")],
    yes: Yes = False,
) -> None:
    """Request the payout of what is payable now; somebody else approves it."""
    session = session_of(context)
    confirm(session, f"Pay out what is payable of {earnings}?", yes=yes)
    done = session.client.post(f"payees/{earnings}/settle")
    session.printer.done(done, f"Requested payout {done['payout_id']}.")


@app.command()
def approve(context: typer.Context, payout: Payout) -> None:
    """Approve a payout that somebody else, or the schedule, asked for."""
    session = session_of(context)
    session.printer.done(session.client.post(f"payouts/{payout}/approve"), "Approved.")


@app.command()
def cancel(context: typer.Context, payout: Payout, reason: Reason) -> None:
    """Cancel a payout that was not sent: its money is earnings again."""
    session = session_of(context)
    done = session.client.post(f"payouts/{payout}/cancel", {"reason": reason})
    session.printer.done(done, "Cancelled.")


@app.command()
def paid(
    context: typer.Context,
    payout: Payout,
    reference: Annotated[str, typer.Option("--reference", help="what the bank calls it")],
    on: Annotated[str | None, typer.Option("--on", help="day on the statement; today")] = None,
) -> None:
    """Note that the bank paid."""
    session = session_of(context)
    day = on or datetime.now(UTC).date().isoformat()
    done = session.client.post(f"payouts/{payout}/paid", {"reference": reference, "paid_on": day})
    session.printer.done(done, "Marked as paid.")


@app.command()
def returned(context: typer.Context, payout: Payout, reason: Reason) -> None:
    """Note that the money came back, or never went: it is earnings again."""
    session = session_of(context)
    done = session.client.post(f"payouts/{payout}/returned", {"reason": reason})
    session.printer.done(done, "It is the owner's earnings again.")


@app.command()
def send(
    context: typer.Context,
    to: Annotated[Path, typer.Option("--to", help="folder that the file is written to")],
    form: Annotated[str, typer.Option("--format", help="pain.001 or csv")] = "pain.001",
    currency: Annotated[str, typer.Option("--currency", help="of which payouts")] = "USD",
) -> None:
    """Put all approved payouts into a file for the bank. Each is in one file only."""
    session = session_of(context)
    made = session.client.post("bank-files", {"format": form, "currency": currency})
    _load(session, made["file_id"], to)


@app.command()
def files(
    context: typer.Context,
    load: Annotated[UUID | None, typer.Option("--load", help="id of one to load again")] = None,
    to: Annotated[Path, typer.Option("--to", help="folder that it is written to")] = Path(),
) -> None:
    """List the files for the bank, or load one again: it has the same bytes."""
    session = session_of(context)
    if load is None:
        session.printer.table(session.client.all("bank-files"), FILES, empty="No files.")
        return
    _load(session, str(load), to)


def _load(session: Session, file_id: str, folder: Path) -> None:
    found = session.client.post(f"bank-files/{file_id}/content")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / Path(found["name"]).name
    place.write_bytes(found["content"].encode())
    session.printer.done({"file": str(place), "sha256": found["sha256"]}, f"Wrote {place}.")
