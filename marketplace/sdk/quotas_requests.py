"""`offpeak quotas request` and what becomes of it: more quota for a time, by a token."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from . import quotas
from .quotas import Market, _set, _span
from .session import session_of
from .whole_numbers import whole

app = quotas.app

REQUESTS = (
    ("id", "request"),
    ("state", "state"),
    ("subscriber_id", "unit"),
    ("gpu_class", "class"),
    ("nominal", "nominal"),
    ("starts_at", "from"),
    ("ends_at", "to"),
    ("why", "why"),
)


@app.command()
def request(
    context: typer.Context,
    subscriber: UUID,
    gpu_class: str,
    nominal: Annotated[int, typer.Argument(parser=whole(0))],
    start: Annotated[str, typer.Option("--from", help="now, +2h, 20:00, RFC 3339")],
    length: Annotated[str, typer.Option("--for", help="how long: 3d")],
    why: Annotated[str, typer.Option(help="the reason")],
    market: Market = None,
) -> None:
    """Ask for another nominal quota for a time."""
    asked = {"subscriber_id": subscriber, "gpu_class": gpu_class, "nominal": nominal, "why": why}
    _set(context, market, "requests", **asked, **_span(start, length))


@app.command()
def requests(context: typer.Context, market: Market = None) -> None:
    """List requests for quota, newest first."""
    session = session_of(context)
    session.printer.table(
        session.client.all("quotas/requests", market=market),
        REQUESTS,
        empty="No requests.",
    )


@app.command()
def approve(context: typer.Context, request_id: UUID, market: Market = None) -> None:
    """Approve a request; hand the token to who asked."""
    _set(context, market, f"requests/{request_id}/approve")


@app.command()
def decline(
    context: typer.Context,
    request_id: UUID,
    why: Annotated[str, typer.Option(help="the reason")],
    market: Market = None,
) -> None:
    """Decline a request."""
    _set(context, market, f"requests/{request_id}/decline", why=why)


@app.command("take-up")
def take_up(
    context: typer.Context, request_id: UUID, token_id: UUID, market: Market = None
) -> None:
    """Take approved quota up, by the token that the approval gave."""
    _set(context, market, f"requests/{request_id}/take-up", token_id=token_id)
