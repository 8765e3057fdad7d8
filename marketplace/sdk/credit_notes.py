"""`offpeak credit-notes`: to credit parts of invoices, with a second person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .invoices import Number, save_pdf
from .session import Yes, confirm, session_of

app = typer.Typer(
    help="Credit notes: asked for by one person, issued by another.", no_args_is_help=True
)

LIST = (
    ("number", "number"),
    ("state", "state"),
    ("invoice_number", "corrects"),
    ("total", "amount", money),
    ("reason", "reason"),
    ("credit_id", "id"),
)
ONE = (*LIST, ("net", "net", money), ("tax", "tax", money), ("asked_at", "asked"))
LINES = (("line_id", "line"), ("amount", "amount", money))

Note = Annotated[UUID, typer.Argument(help="the id of a credit note")]


@app.command("list")
def list_notes(context: typer.Context) -> None:
    """List credit notes, those asked for last first."""
    session = session_of(context)
    session.printer.table(session.client.all("credit-notes"), LIST, empty="No credit notes.")


@app.command("show")
def show(context: typer.Context, note: Note) -> None:
    """Show one with its lines."""
    session = session_of(context)
    found = session.client.get(f"credit-notes/{note}")
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.facts(found, ONE)
    session.printer.table(found["lines"], LINES, empty="No lines.")


@app.command("ask")
def ask(
    context: typer.Context,
    number: Number,
    reason: Annotated[str, typer.Option("--reason", help="why, for whoever approves and gets it")],
    line: Annotated[
        list[str] | None,
        typer.Option("--line", help="line and amount without tax, such as 001=0.73; else all"),
    ] = None,
    yes: Yes = False,
) -> None:
    """Ask to credit lines of an invoice, or all that is left of it; somebody else approves."""
    session = session_of(context)
    lines = [_line(each) for each in line or ()]
    what = f"{len(lines)} lines" if lines else "all that is left"
    confirm(session, f"Ask to credit {what} of {number}?", yes=yes)
    asked: dict[str, Any] = {"reason": reason, **({"lines": lines} if lines else {})}
    done = session.client.post(f"invoices/{number}/credit-notes", asked)
    session.printer.done(done, f"Asked for credit note {done['credit_id']}.")


@app.command("approve")
def approve(context: typer.Context, note: Note) -> None:
    """Issue a credit note that somebody else asked for."""
    session = session_of(context)
    session.printer.done(session.client.post(f"credit-notes/{note}/approve"), "Issued.")


@app.command("decline")
def decline(context: typer.Context, note: Note) -> None:
    """Issue none: decline what somebody asked for, or take back what you asked for."""
    session = session_of(context)
    session.printer.done(session.client.post(f"credit-notes/{note}/decline"), "Not issued.")


@app.command("pdf")
def pdf(
    context: typer.Context,
    note: Note,
    to: Annotated[Path | None, typer.Option(help="file; NUMBER.pdf otherwise")] = None,
) -> None:
    """Download an issued credit note as PDF."""
    session = session_of(context)
    if to is None:
        to = Path(f"{session.client.get(f'credit-notes/{note}')['number'] or note}.pdf")
    save_pdf(session, f"credit-notes/{note}/pdf", to)


def _line(text: str) -> dict[str, str]:
    line_id, equals, amount = text.partition("=")
    if not equals or not line_id or not amount:
        raise typer.BadParameter("a line is its number and an amount, such as 001=0.73")
    return {"line_id": line_id.strip(), "amount": amount.strip()}
