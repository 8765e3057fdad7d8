"""`offpeak statement` and `offpeak export`: what was spent and earned, and files for finance."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from .forms import money
from .session import session_of

ACCOUNTS = (
    ("title", "account"),
    ("kind", "kind"),
    ("available", "available", money),
    ("held", "held", money),
    ("total", "total", money),
    ("account_id", "id"),
)
LINES = (
    ("at", "when"),
    ("kind", "what"),
    ("amount", "amount", money),
    ("balance", "balance", money),
)
Period = Annotated[str | None, typer.Option(help="a month such as 2026-11; this one otherwise")]


def statement(
    context: typer.Context,
    account: Annotated[UUID | None, typer.Argument(help="its id; all of them otherwise")] = None,
    period: Period = None,
) -> None:  # fmt: skip
    """List accounts with their balances, or the lines of one."""
    session = session_of(context)
    if account is None:
        session.printer.table(session.client.all("accounts"), ACCOUNTS, empty="No accounts.")
        return
    month = period or datetime.now().astimezone().strftime("%Y-%m")
    lines = session.client.all(f"accounts/{account}/statement", period=month)
    session.printer.table(lines, LINES, empty=f"Nothing was posted in {month}.")


def export(
    context: typer.Context,
    form: Annotated[str, typer.Argument(help="focus, beancount or gl")],
    period: Period = None,
    to: Annotated[Path | None, typer.Option(help="file; standard output otherwise")] = None,
) -> None:
    """Download a month for finance."""
    session = session_of(context)
    month = period or datetime.now().astimezone().strftime("%Y-%m")
    parts = session.client.download("exports", format=form, period=month)
    if to is None:
        for part in parts:
            session.printer.write(part)
        return
    draft = to.with_name(f".{to.name}.part")
    with draft.open("wb") as file:
        for part in parts:
            file.write(part)
    draft.rename(to)
    session.printer.say(f"Wrote {to}.")
