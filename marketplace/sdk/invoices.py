"""`offpeak invoices`: months as documents, and to issue and credit them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .forms import money
from .session import Session, session_of

app = typer.Typer(help="Invoices, receipts and credit notes.", no_args_is_help=True)

INVOICES = (
    ("number", "number"),
    ("kind", "kind"),
    ("period", "month"),
    ("total", "total", money),
    ("credited", "credited", money),
    ("issued_at", "issued"),
)
LINES = (
    ("line_id", "line"),
    ("title", "item"),
    ("quantity", "quantity"),
    ("unit", "unit"),
    ("amount", "amount"),
    ("exact", "exactly"),
)
REFUSED = (("title", "account"), ("message", "not invoiced"))
OWED = (
    ("number", "number"),
    ("state", "state"),
    ("due_at", "due"),
    ("left", "to be paid", money),
    ("total", "total", money),
    ("url", "pay it at"),
    ("paid_by", "paid by"),
)
Number = Annotated[str, typer.Argument(help="of the invoice, such as INV-2026-0001")]


@app.command("list")
def list_invoices(
    context: typer.Context,
    period: Annotated[str | None, typer.Option(help="only of a month such as 2026-11")] = None,
) -> None:
    """List invoices, those of the newest month first."""
    session = session_of(context)
    asked: dict[str, Any] = {} if period is None else {"period": period}
    session.printer.table(session.client.all("invoices", **asked), INVOICES, empty="No invoices.")


@app.command("show")
def show(context: typer.Context, number: Number) -> None:
    """Show the lines of an invoice."""
    session = session_of(context)
    lines = session.client.get(f"invoices/{number}")["lines"]
    session.printer.table(lines, LINES, empty="No lines.")


@app.command("pdf")
def pdf(
    context: typer.Context,
    number: Number,
    to: Annotated[Path | None, typer.Option(help="file; NUMBER.pdf otherwise")] = None,
) -> None:
    """Download an invoice as PDF."""
    session = session_of(context)
    save_pdf(session, f"invoices/{number}/pdf", to or Path(f"{number}.pdf"))


@app.command("issue")
def issue(
    context: typer.Context,
    period: Annotated[str, typer.Argument(help="a month such as 2026-11, at least soft-closed")],
) -> None:
    """Issue the invoices of a month; for the platform's finance."""
    session = session_of(context)
    said = session.client.post("invoices", {"period": period})
    session.printer.say(f"{len(said['issued'])} issued, {said['left']} left.")
    if said["refused"]:
        session.printer.table(said["refused"], REFUSED, empty="")


def save_pdf(session: Session, path: str, target: Path) -> None:
    """Write a file that the market sends, whole or not at all."""
    draft = target.with_name(f".{target.name}.part")
    with draft.open("wb") as file:
        for part in session.client.download(path):
            file.write(part)
    draft.rename(target)
    session.printer.say(f"Wrote {target}.")


@app.command("owed")
def owed(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option(help="open, overdue, paid, credited or written-off")
    ] = None,
) -> None:
    """List invoices that are to be paid, those due first in front."""
    session = session_of(context)
    asked: dict[str, Any] = {} if state is None else {"state": state}
    rows = session.client.all("receivables", **asked)
    session.printer.table(rows, OWED, empty="Nothing is to be paid.")


@app.command("paid")
def paid(
    context: typer.Context,
    number: Number,
    reference: Annotated[str, typer.Option("--reference", help="what the bank calls it")],
    amount: Annotated[str | None, typer.Option(help="left out for all that is owed")] = None,
) -> None:
    """Enter a transfer that paid an invoice; for the platform's finance."""
    session = session_of(context)
    asked = {"reference": reference} | ({} if amount is None else {"amount": amount})
    done = session.client.post(f"invoices/{number}/payments", asked)
    session.printer.done(done, "The payment is on the account.")


@app.command("write-off")
def write_off(
    context: typer.Context,
    number: Number,
    reason: Annotated[str | None, typer.Option(help="asks for it")] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="what somebody else asked for")
    ] = False,
    decline: Annotated[bool, typer.Option("--decline", help="or take your own back")] = False,
) -> None:
    """Give up what is owed of an invoice; two people of the platform's finance do."""
    session = session_of(context)
    if [reason is not None, approve, decline].count(True) != 1:
        raise typer.BadParameter("one of --reason, --approve and --decline")
    place = f"invoices/{number}/write-off"
    if reason is not None:
        done = session.client.post(place, {"reason": reason})
        session.printer.done(done, "Asked. Somebody else has to approve.")
        return
    done = session.client.post(f"{place}/{'approve' if approve else 'decline'}")
    session.printer.done(done, "It is written off." if approve else "Nothing is given up.")
