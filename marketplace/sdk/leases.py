"""`offpeak leases` and `offpeak usage`: what you have, how it goes, what it costs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from .coming_home import home
from .fetching import told
from .forms import gpu_hours, kilowatt_hours, money
from .idle import idle, sentence
from .lease_prices import agree, decline, price
from .maintenance import maintained
from .printing import shown
from .session import Yes, confirm, session_of
from .spoken import length_of, moment_of
from .waiting import LEASE
from .whole_numbers import whole

TAKERS = {
    "owner": "Its owner takes the GPUs back",
    "market": "The market, for a firm bid, takes the GPUs back",
    "cloud": "The cloud takes the machine back",
    "move": "The work moves home, to a lease that begins",
}
"""Who ends a lease before its time, as a sentence begins."""

app = typer.Typer(help="Leases: what runs, until when, at what price.", no_args_is_help=True)

COLUMNS = (
    ("id", "lease"),
    ("state", "state"),
    ("gpu_model", "GPU"),
    ("gpus", "GPUs"),
    ("starts_at", "starts"),
    ("ends_at", "ends"),
    ("stop_at", "interrupted at"),
    ("price", "price per GPU-hour", money),
    ("close_reason.text", "ended because"),
)
ONE = (
    *LEASE,
    ("stop_at", "interrupted at"),
    ("cut.by", "interrupted by"),
    ("cut.compensation", "compensation", money),
    ("maintenance", "maintenance ahead", maintained),
    ("notice_seconds", "notice, s"),
    ("grace_seconds", "grace, s"),
    ("gpu_uuids", "GPU UUIDs"),
    ("cost_centre", "cost centre"),
    ("checkpoint_at", "last checkpoint"),
    ("kept_seconds", "work kept, s"),
    ("lost_seconds", "work lost, s"),
    ("extension.ends_at", "extension requested until"),
    ("extension.answer", "answer"),
    ("extension.reason_text", "because"),
    ("close_reason.text", "ended because"),
    ("actions", "what you may do"),
)
QUOTE = (
    ("notice_seconds", "notice, s"),
    ("stop_at", "back by"),
    ("compensation", "you pay", money),
)
SALE = (
    *ONE,
    ("resale.state", "the rest"),
    ("resale.since", "for sale from"),
    ("resale.floor", "floor per GPU-hour", money),
    ("resale.opens_at", "owner's until"),
)
USAGE = (
    ("granted_ms", "granted, GPU-hours", gpu_hours),
    ("occupied_ms", "occupied, GPU-hours", gpu_hours),
    ("busy_ms", "busy, GPU-hours", gpu_hours),
    ("energy_mj", "energy, kWh", kilowatt_hours),
    ("gap_ms", "unproven, GPU-hours", gpu_hours),
    ("cost", "cost so far", money),
    ("charged", "charged", money),
    ("rated_through", "rated through"),
    ("is_final", "final"),
)


@app.command("list")
def list_leases(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="active, scheduled, closed, …")] = None,
    limit: Annotated[int, typer.Option(parser=whole(1), help="how many at most")] = 50,
) -> None:
    """List leases, newest first."""
    session = session_of(context)
    session.printer.table(
        session.client.all("leases", limit=limit, state=state),
        COLUMNS,
        empty="No leases. A bid that is matched becomes one: offpeak bids create --help",
    )


@app.command()
def show(context: typer.Context, lease: UUID) -> None:
    """Show one lease, and what you may do with it now."""
    session = session_of(context)
    found = session.client.get(f"leases/{lease}")
    session.printer.facts(found, ONE)
    for each in found.get("attempts", ()):
        if each["started_at"] is None and each["reason"]:
            session.printer.say(f"Host {each['host_id']} did not start the work: {each['reason']}")
        for said in told(each):
            session.printer.say(said)
    if found.get("state") == "active" and not session.printer.as_json:
        standing = session.client.get(f"leases/{lease}/idle")
        if standing.get("rule") is not None:
            session.printer.say(sentence(standing))
    if found.get("cut"):
        who = TAKERS.get(found["cut"]["by"], "Somebody takes the GPUs back")
        until = shown(found["cut"]["stop_at"])
        session.printer.say(
            f"{who} at {until}: save the work and `offpeak leases checkpoint {lease}`."
        )


app.command("price")(price)
app.command("agree")(agree)
app.command("decline")(decline)
app.command("idle")(idle)
app.command("home")(home)


@app.command()
def end(context: typer.Context, lease: UUID) -> None:
    """End a lease now; the work is stopped and the rest is not charged."""
    session = session_of(context)
    done = session.client.delete(f"leases/{lease}")
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), ONE)


@app.command()
def extend(
    context: typer.Context,
    lease: UUID,
    until: Annotated[str, typer.Option(help="+2h from now, 06:00, or RFC 3339")],
) -> None:
    """Request an extension on the same GPUs at the same price."""
    session = session_of(context)
    ends_at = moment_of(until, now=datetime.now().astimezone())
    done = session.client.post(f"leases/{lease}/extension", {"ends_at": ends_at.isoformat()})
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), ONE)
    session.printer.say(f"Asked. offpeak leases show {lease} tells when it is granted.")


@app.command()
def checkpoint(
    context: typer.Context,
    lease: UUID,
    at: Annotated[
        str | None, typer.Option("--at", help="up to when the work is safe: 14:30, RFC 3339")
    ] = None,
) -> None:
    """Note a checkpoint: work resumes from here if the lease is interrupted."""
    session = session_of(context)
    asked = {}
    if at is not None:
        asked["safe_at"] = moment_of(at, now=datetime.now().astimezone()).isoformat()
    done = session.client.post(f"leases/{lease}/checkpoint", asked)
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), ONE)


@app.command("reclaim-quote")
def reclaim_quote(context: typer.Context, lease: UUID) -> None:
    """Show what a reclaim would cost now, by the notice it gives."""
    session = session_of(context)
    session.printer.table(
        session.client.get(f"leases/{lease}/reclaim-quote")["choices"],
        QUOTE,
        empty="The lease ends before the least notice would be over: nothing to reclaim.",
    )


@app.command()
def reclaim(
    context: typer.Context,
    lease: UUID,
    notice: Annotated[
        str | None, typer.Option(help="more than the least agreed costs less: 24h")
    ] = None,
    yes: Yes = False,
) -> None:
    """As an owner, take your capacity back after the agreed notice."""
    session = session_of(context)
    confirm(session, f"End lease {lease} for its consumer, and pay what was agreed?", yes=yes)
    asked = {} if notice is None else {"notice_seconds": length_of(notice)}
    done = session.client.post(f"leases/{lease}/reclaim", asked)
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), ONE)


@app.command()
def sell(
    context: typer.Context,
    lease: UUID,
    floor: Annotated[str, typer.Option(help="least per GPU-hour; not below what you pay")],
    since: Annotated[
        str | None, typer.Option("--from", help="+2h, 20:00, RFC 3339; else from now on")
    ] = None,
    shortest: Annotated[str, typer.Option(help="the shortest lease sold of it")] = "15m",
) -> None:
    """Put the rest of a lease back on the market; its owner may take it first."""
    session = session_of(context)
    asked: dict[str, object] = {"floor": floor, "lease_min_seconds": length_of(shortest)}
    if since is not None:
        asked["since"] = moment_of(since, now=datetime.now().astimezone()).isoformat()
    done = session.client.post(f"leases/{lease}/resale", asked)
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), SALE)


@app.command()
def keep(context: typer.Context, lease: UUID) -> None:
    """Stop selling the rest of a lease that is not sold yet."""
    session = session_of(context)
    done = session.client.delete(f"leases/{lease}/resale")
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), SALE)


@app.command("take-first")
def take_first(context: typer.Context, lease: UUID) -> None:
    """As an owner, take the rest that a consumer sells before the market is asked."""
    session = session_of(context)
    done = session.client.post(f"leases/{lease}/resale/take")
    session.printer.facts(session.client.get(f"leases/{lease}", after=done["position"]), ONE)


def usage(context: typer.Context, lease: UUID) -> None:
    """Show a lease's GPU-time and what it costs so far."""
    session = session_of(context)
    session.printer.facts(session.client.get(f"leases/{lease}/usage"), USAGE)
