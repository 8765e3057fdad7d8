"""`offpeak documents`: statements of months, and invoices that were issued for owners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .invoices import save_pdf
from .session import session_of

app = typer.Typer(
    help="Statements of months, and invoices issued for owners.", no_args_is_help=True
)

LIST = (
    ("number", "number"),
    ("kind", "kind"),
    ("period", "month"),
    ("account_title", "account"),
    ("total", "closing or total", money),
    ("paper_id", "id"),
)
ONE = (*LIST, ("opening", "opening", money), ("held", "set aside", money), ("replaces", "replaces"))
LINES = (
    ("title", "line"),
    ("gross", "consumers paid", money),
    ("fee", "fee", money),
    ("amount", "amount", money),
)

Paper = Annotated[UUID, typer.Argument(help="the id of a document")]


@app.command("list")
def list_papers(
    context: typer.Context,
    period: Annotated[str | None, typer.Option(help="only of a month such as 2026-11")] = None,
) -> None:
    """List them, those of the newest month first."""
    session = session_of(context)
    asked: dict[str, Any] = {} if period is None else {"period": period}
    found = session.client.all("documents", **asked)
    session.printer.table(found, LIST, empty="No documents.")


@app.command("show")
def show(context: typer.Context, paper: Paper) -> None:
    """Show one with its lines."""
    session = session_of(context)
    found = session.client.get(f"documents/{paper}")
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.facts(found, ONE)
    session.printer.table(found["lines"], LINES, empty="No lines.")


@app.command("pdf")
def pdf(
    context: typer.Context,
    paper: Paper,
    to: Annotated[Path | None, typer.Option(help="file; NUMBER.pdf otherwise")] = None,
) -> None:
    """Download one as PDF."""
    session = session_of(context)
    if to is None:
        to = Path(f"{session.client.get(f'documents/{paper}')['number']}.pdf")
    save_pdf(session, f"documents/{paper}/pdf", to)


@app.command("issue")
def issue(
    context: typer.Context,
    period: Annotated[str, typer.Argument(help="a closed month such as 2026-11")],
) -> None:
    """Issue the statements of a closed month; for the platform's finance."""
    session = session_of(context)
    said = session.client.post("documents", {"period": period})
    session.printer.done(said, f"{said['issued']} issued, {said['left']} left.")
