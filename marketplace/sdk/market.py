"""`offpeak market`: what is for lease, and at what price."""

from __future__ import annotations

from typing import Annotated

import typer

from .session import session_of

COLUMNS = (
    ("gpu_model", "GPU"),
    ("free", "free now"),
    ("listed", "listed"),
    ("wanted", "wanted"),
    ("lowest_floor", "lowest floor"),
    ("highest_limit", "highest bid"),
    ("last_price", "last price"),
    ("currency", "per GPU-hour"),
)


def market(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Option("--market", help="which one; left out: the installation's own")
    ] = None,
) -> None:
    """Show prices and supply, a line for each GPU model."""
    session = session_of(context)
    session.printer.table(
        session.client.all("market", market=name),
        COLUMNS,
        empty="Nothing is listed. Owners list idle windows: offpeak offers --help",
    )
