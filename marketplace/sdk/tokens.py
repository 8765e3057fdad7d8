"""`offpeak tokens`: API tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from .session import session_of
from .spoken import moment_of

app = typer.Typer(help="API tokens of yours.", no_args_is_help=True)

COLUMNS = (
    ("token_id", "token"),
    ("title", "for"),
    ("prefix", "begins with"),
    ("scopes", "may"),
    ("expires_at", "until"),
    ("used_at", "last used"),
    ("revoked_at", "revoked"),
)


@app.command("list")
def list_tokens(context: typer.Context) -> None:
    """List tokens, newest first."""
    session = session_of(context)
    session.printer.table(session.client.all("tokens"), COLUMNS, empty="No tokens.")


@app.command()
def create(
    context: typer.Context,
    title: str,
    scope: Annotated[list[str], typer.Option(help="such as bids:write; may be given repeatedly")],
    until: Annotated[str | None, typer.Option(help="+30d or RFC 3339; 90 days otherwise")] = None,
) -> None:
    """Make a token. It is shown this once."""
    session = session_of(context)
    asked: dict[str, Any] = {"title": title, "scopes": scope}
    if until is not None:
        asked["expires_at"] = moment_of(until, now=datetime.now().astimezone()).isoformat()
    made = session.client.post("tokens", asked)
    session.printer.facts(made, (("token_id", "token"), ("token", "secret, shown once")))


@app.command()
def revoke(context: typer.Context, token: UUID) -> None:
    """Stop a token from working."""
    session = session_of(context)
    done = session.client.delete(f"tokens/{token}")
    session.printer.done(done, "Revoked.")
