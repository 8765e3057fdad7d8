"""`offpeak market`: what is for lease, and at what price."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .forms import money
from .session import session_of

COLUMNS = (
    ("gpu_model", "GPU"),
    ("free", "free now"),
    ("listed", "listed"),
    ("wanted", "wanted"),
    ("lowest_floor", "lowest floor per GPU-hour", money),
    ("highest_limit", "highest bid", money),
    ("last_price", "last price", money),
    ("notice", "notice"),
    ("grace", "grace"),
)
UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def market(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Option("--market", help="which one; left out: the installation's own")
    ] = None,
) -> None:
    """Show prices and supply, a line for each GPU model."""
    session = session_of(context)
    found = session.client.all("market", market=name)
    session.printer.table(
        found if session.printer.as_json else map(_with_promises, found),
        COLUMNS,
        empty="Nothing is listed. Owners list idle windows: offpeak offers --help",
    )


def _with_promises(goods: dict[str, Any]) -> dict[str, Any]:
    """Add what owners promise as people read it: 5m, or 5m to 1h."""
    promised = goods.get("promised") or {}
    return goods | {
        name: _from_to(promised.get(f"{name}_seconds_min"), promised.get(f"{name}_seconds_max"))
        for name in ("notice", "grace")
    }


def _from_to(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return ""
    return _length(least) if least == most else f"{_length(least)} to {_length(most)}"


def _length(seconds: int) -> str:
    unit, size = next(
        ((unit, size) for unit, size in UNITS if seconds and seconds % size == 0), UNITS[-1]
    )
    return f"{seconds // size}{unit}"
