"""`offpeak hosts`: machines whose GPUs you list."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import typer

from .maintenance import WINDOWS
from .maintenance import app as maintenance
from .session import Session, Yes, confirm, session_of
from .whole_numbers import whole

app = typer.Typer(help="Hosts: machines whose GPUs you list.", no_args_is_help=True)
app.add_typer(maintenance, name="maintenance")

DOING = (
    ("title", "host"),
    ("standing", "its agent is"),
    ("last_seen_at", "heard last"),
    ("takes", "takes"),
)
GPU_HEALTH = (
    ("gpu_uuid", "GPU"),
    ("condition", "is"),
    ("reason", "withheld for"),
    ("since", "since"),
    ("next_look_at", "looked at again"),
    ("detail", "in words"),
)
SPANS = (
    ("since", "since"),
    ("until", "until"),
    ("gpu_uuid", "GPU"),
    ("kind", "what"),
    ("said_by", "said by"),
    ("words", "in words"),
)
COLUMNS = (
    ("id", "host"),
    ("title", "name"),
    ("state", "state"),
    ("region", "region"),
    ("market", "market"),
    ("gpu_count", "GPUs"),
    ("sandbox", "sandbox"),
    ("able", "abilities"),
    ("takes", "takes"),
)
STRICTNESS = ("all", "paused", "draining", "released")
TOKEN_TITLE_MAX = 120
"""Characters that the title of a token may have."""
CODE = (
    ("code", "code, shown once"),
    ("expires_at", "works once, until"),
    ("command", "on the host"),
)
MADE = (("host_id", "host"), ("id", "token"), ("token", "its agent's secret, shown once"))


@app.command("list")
def list_hosts(context: typer.Context) -> None:
    """List your hosts, newest first."""
    session = session_of(context)
    empty = "No hosts. Try: offpeak hosts add NAME --region eu"
    rows = [
        row
        | {
            "gpu_count": len(row["gpus"]),
            "able": " ".join(row.get("abilities", ())),
            "takes": _takes(row),
        }
        for row in session.client.all("hosts")
    ]
    session.printer.table(rows, COLUMNS, empty=empty)


@app.command()
def add(
    context: typer.Context,
    title: Annotated[str, typer.Argument(help="so that you know it again")],
    region: Annotated[str, typer.Option(help="where it stands, such as eu-central")],
    market: Annotated[str | None, typer.Option(help="that of its region otherwise")] = None,
    label: Annotated[list[str] | None, typer.Option(help="rack=7; may be given repeatedly")] = None,
) -> None:
    """Make a host known, and a token for its agent. The token is shown this once."""
    session = session_of(context)
    asked: dict[str, Any] = {"title": title, "region": region}
    if market is not None:
        asked["market"] = market
    if label:
        asked["labels"] = _labels(label)
    host = session.client.post("hosts", asked)["id"]
    named = f"agent of {title}"[:TOKEN_TITLE_MAX]
    made = session.client.post(f"hosts/{host}/tokens", {"title": named})
    session.printer.facts(made | {"host_id": host}, MADE)


@app.command()
def token(context: typer.Context, host: UUID, title: str = "its agent") -> None:
    """Make another token for a host's agent. It is shown this once."""
    session = session_of(context)
    made = session.client.post(f"hosts/{host}/tokens", {"title": title})
    session.printer.facts(made | {"host_id": str(host)}, MADE)


@app.command()
def enrol(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="NAME", help="or id, of the host")],
) -> None:
    """Make a code by which a host's agent gets its token: once, within 15 minutes."""
    session = session_of(context)
    host_id = _host_of(session, host)
    made = session.client.post(f"hosts/{host_id}/enrolment-codes")
    command = f"offpeak-agent enrol {session.server} {made['code']}"
    session.printer.facts(made | {"host_id": host_id, "command": command}, CODE)


@app.command()
def retire(context: typer.Context, host: UUID, yes: Yes = False) -> None:
    """Take a host off the market for good; what runs there runs on."""
    session = session_of(context)
    confirm(session, f"Retire host {host} for good, and withdraw its offers?", yes=yes)
    done = session.client.post(f"hosts/{host}/retire")
    session.printer.done(done, "Retired. Its offers are withdrawn.")


@app.command()
def pause(context: typer.Context, host: UUID) -> None:
    """Take no new work on a host; what runs there goes on to its end."""
    _turn(context, host, "pause", "Paused: nothing new is started there.")


@app.command()
def drain(context: typer.Context, host: UUID, yes: Yes = False) -> None:
    """Take no new work on a host, and reclaim what runs, each with its least notice."""
    confirm(session_of(context), f"Reclaim all that runs on host {host}?", yes=yes)
    _turn(context, host, "drain", "Draining: what runs ends with its notice.")


@app.command()
def release(context: typer.Context, host: UUID, yes: Yes = False) -> None:
    """Take a host's GPUs back at once, without notice; each lease is compensated."""
    confirm(session_of(context), f"End all that runs on host {host} at once?", yes=yes)
    _turn(context, host, "release", "Released: what runs is ended now.")


@app.command()
def resume(context: typer.Context, host: UUID) -> None:
    """Take work on a host again, as far as the switch at the host lets it."""
    _turn(context, host, "resume", "Resumed.")


@app.command()
def undrain(context: typer.Context, host: UUID) -> None:
    """Take work on a drained host again; the same as resume."""
    _turn(context, host, "resume", "Takes work again.")


@app.command()
def health(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="id, or name")],
    limit: Annotated[int, typer.Option(parser=whole(1), help="lines of history")] = 20,
) -> None:
    """Tell how a host and its GPUs do, and what was the matter with them."""
    session = session_of(context)
    host_id = _host_of(session, host)
    now = session.client.get(f"hosts/{host_id}/health")
    spans = list(islice(session.client.all(f"hosts/{host_id}/health/history"), limit))
    if session.printer.as_json:
        session.printer.json(now | {"history": spans})
        return
    told = {"standing": now.get("standing") or "never heard", "takes": _takes(now)}
    session.printer.facts(now | told, DOING)
    session.printer.table(now["gpus"], GPU_HEALTH, empty="It has reported no GPUs yet.")
    session.printer.table(now.get("maintenance", ()), WINDOWS, empty="No maintenance is planned.")
    session.printer.table(spans, SPANS, empty="Nothing was ever the matter.")


def _turn(context: typer.Context, host: UUID, verb: str, said: str) -> None:
    session = session_of(context)
    session.printer.done(session.client.post(f"hosts/{host}/{verb}"), said)


def _takes(row: dict[str, Any]) -> str:
    """Return what is taken there: by the stricter of the two switches, and which that is."""
    at_host, on_market = row.get("at_host", "all"), row.get("on_market", "all")
    strictest = max(at_host, on_market, key=STRICTNESS.index)
    if strictest == "all":
        return "work"
    return f"{strictest} (at the host)" if at_host == strictest else strictest


def _host_of(session: Session, name: str) -> str:
    """Return the id of a host by it, or by its name if no other has it."""
    try:
        return str(UUID(name))
    except ValueError:
        found = [row["id"] for row in session.client.all("hosts") if row["title"] == name]
    if len(found) != 1:
        said = "no host" if not found else "several hosts, say its id,"
        raise typer.BadParameter(f"{said} of the name {name!r}", param_hint="NAME")
    return str(found[0])


def _labels(said: list[str]) -> dict[str, str]:
    found = {}
    for each in said:
        name, sign, value = each.partition("=")
        if not sign:
            raise typer.BadParameter(f"{each!r}: say NAME=VALUE", param_hint="--label")
        found[name] = value
    return found
