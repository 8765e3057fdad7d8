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
    ("channel", "went out by"),
    ("file_id", "bank file"),
    ("waits_because", "waits, since"),
    ("again_at", "asked again"),
    ("paid_on", "paid on"),
    ("reversed", "came back", money),
    ("reason", "reason"),
)
AGREED = (
    ("tenant_id", "owner"),
    ("agreed_at", "agreed"),
    ("small_business", "small enterprise"),
    ("ended_at", "ended"),
)
FILES = (
    ("message_id", "file"),
    ("format", "format"),
    ("payouts", "payouts"),
    ("total", "control sum", money),
    ("at", "written"),
    ("file_id", "id"),
)

HEARD = (
    ("on", "day"),
    ("reference", "bank's reference"),
    ("amount", "amount", money),
    ("kind", "what came of it"),
    ("words", ""),
    ("payout_id", "payout"),
)
STRIPE = (
    ("channel", "payouts go out by"),
    ("usable_from", "from"),
    ("state", "account at Stripe"),
    ("missing", "Stripe wants to know"),
    ("words", "Stripe says"),
    ("account", "its id there"),
    ("offered", "offered here"),
)

Earnings = Annotated[UUID, typer.Argument(help="the id of earnings, as `owed` lists them")]
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
def stripe(context: typer.Context, earnings_id: Earnings) -> None:
    """Show an owner's account at Stripe, and how payouts go out."""
    session = session_of(context)
    session.printer.facts(session.client.get(f"payees/{earnings_id}/stripe"), STRIPE)


@app.command("set-up-stripe")
def set_up_stripe(
    context: typer.Context,
    earnings_id: Earnings,
    country: Annotated[str, typer.Option("--country", help="two letters, if not ours")] = "",
) -> None:
    """Ask for an account at Stripe and print the page to go on at: it can be used once."""
    session = session_of(context)
    session.client.post(f"payees/{earnings_id}/stripe", {"country": country})
    found = session.client.post(f"payees/{earnings_id}/stripe/onboarding")
    session.printer.done(found, f"Go on at {found['url']}")


@app.command()
def channel(
    context: typer.Context,
    earnings_id: Earnings,
    way: Annotated[str, typer.Argument(help="bank-file or stripe")],
) -> None:
    """Choose how your payouts go out; over Stripe only after a wait, so that others can object."""
    session = session_of(context)
    done = session.client.put(f"payees/{earnings_id}/channel", {"channel": way})
    session.printer.done(done, "Saved.")


@app.command()
def reverse(
    context: typer.Context,
    payout: Payout,
    amount: Annotated[str, typer.Argument(help="what is to come back, such as 5.00")],
    reason: Reason,
    number: Annotated[int, typer.Option("--number", help="which request of the payout it is")] = 1,
) -> None:
    """Take a part of a payout over Stripe back: it is earnings again once it came."""
    session = session_of(context)
    body = {"number": number, "amount": amount, "reason": reason}
    done = session.client.post(f"payouts/{payout}/reversals", body)
    session.printer.done(done, "Asked of Stripe.")


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


@app.command("bank-notice")
def bank_notice(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="a camt.054 of the bank", exists=True)],
) -> None:
    """Mark what the bank paid or sent back, and print what came of each line."""
    session = session_of(context)
    text = file.read_text(encoding="utf-8-sig")
    found = session.client.post("bank-notices", {"content": text})["data"]
    session.printer.table(found, HEARD, empty="The file has no lines.")


@app.command("self-billing")
def self_billing(
    context: typer.Context,
    agree: Annotated[
        bool | None, typer.Option("--agree/--end", help="agree to it, or end it; else show it")
    ] = None,
    small_business: Annotated[
        bool, typer.Option("--small-business", help="no VAT, as a small enterprise")
    ] = False,
) -> None:
    """Let the platform issue your invoices, one with each settlement; see `documents list`."""
    session = session_of(context)
    if agree is None:
        session.printer.table(session.client.all("self-billing"), AGREED, empty="Not agreed.")
        return
    asked = {"agreed": agree, **({"small_business": small_business} if agree else {})}
    done = session.client.put("self-billing", asked)
    session.printer.done(done, "Agreed." if agree else "Ended.")


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
