"""`offpeak hosts maintenance`: windows in which nothing is leased on a host."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from .printing import shown
from .session import Yes, confirm, session_of
from .spoken import moment_of

app = typer.Typer(
    help="Maintenance: announced times in which nothing is leased on a host.",
    no_args_is_help=True,
)

WINDOWS = (
    ("id", "maintenance"),
    ("starts_at", "from"),
    ("ends_at", "until"),
    ("gpu_uuids", "GPUs (none: all)"),
    ("reason", "for"),
)
Since = Annotated[str | None, typer.Option("--from", help="22:00, +2h, or RFC 3339; now without")]


@app.command("list")
def list_windows(context: typer.Context, host: UUID) -> None:
    """List the windows of a host that are not over."""
    session = session_of(context)
    rows = session.client.all(f"hosts/{host}/maintenance")
    session.printer.table(rows, WINDOWS, empty="No maintenance is planned.")


@app.command()
def announce(
    context: typer.Context,
    host: UUID,
    until: Annotated[str, typer.Option(help="06:00, +4h, or RFC 3339")],
    reason: Annotated[str, typer.Option(help="consumers read it")],
    since: Since = None,
    gpu: Annotated[list[str] | None, typer.Option(help="may be repeated; all without")] = None,
    yes: Yes = False,
) -> None:
    """Lease nothing into a window; leases that would run into it are told and end by its start."""
    session = session_of(context)
    now = datetime.now().astimezone().replace(microsecond=0)
    asked: dict[str, Any] = {"ends_at": _moment(until, now), "reason": reason}
    if since is not None:
        asked["starts_at"] = _moment(since, now)
    if gpu:
        asked["gpu_uuids"] = gpu
    confirm(session, f"Announce maintenance of host {host} until {asked['ends_at']}?", yes=yes)
    made = session.client.post(f"hosts/{host}/maintenance", asked)
    session.printer.done(made, f"Announced: {made['id']}. Leases that it meets are told.")


@app.command()
def move(
    context: typer.Context,
    host: UUID,
    maintenance: UUID,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="06:00, +4h, or RFC 3339")] = None,
) -> None:
    """Have a window at another time; what is left out stays."""
    session = session_of(context)
    now = datetime.now().astimezone().replace(microsecond=0)
    asked = {
        name: _moment(text, now)
        for name, text in (("starts_at", since), ("ends_at", until))
        if text is not None
    }
    if not asked:
        raise typer.BadParameter("say --from, --until, or both")
    done = session.client.patch(f"hosts/{host}/maintenance/{maintenance}", asked)
    session.printer.done(done, "Moved. Leases that it meets are told.")


@app.command()
def cancel(context: typer.Context, host: UUID, maintenance: UUID) -> None:
    """Cancel a window, or end it now: what is offered is leased again."""
    session = session_of(context)
    done = session.client.delete(f"hosts/{host}/maintenance/{maintenance}")
    session.printer.done(done, "Cancelled. What is offered is leased again.")


def maintained(windows: Any, entry: Mapping[str, Any]) -> str:
    """Return in words which maintenance a lease would run into."""
    told = windows if isinstance(windows, list) else []
    return "; ".join(f"{shown(each['starts_at'])}: {each['reason']}" for each in told) or "-"


def _moment(text: str, now: datetime) -> str:
    """Return a moment as the API reads it."""
    return moment_of(text, now=now).astimezone(UTC).isoformat().replace("+00:00", "Z")
