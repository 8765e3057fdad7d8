"""`offpeak wallet`: what is in a wallet, topping it up by card, and money back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .problems import Problem
from .session import Session, session_of
from .waiting import told_if_left

app = typer.Typer(
    help="Money that is paid in before it is used: cards, top-ups, refunds.", no_args_is_help=True
)

PAGE_SECONDS = 60.0
"""So long a page to pay on, or the answer of a saved card, is waited for."""
OVER = frozenset({"succeeded", "failed"})


def _rule(value: Any, entry: Mapping[str, Any]) -> str:
    """Say in a line when a wallet tops itself up."""
    if not value:
        return "-"
    below, amount, most = (
        money(value[name], entry) for name in ("below", "amount", "most_per_day")
    )
    return f"below {below} it adds {amount}, at most {most} on a day"


WALLET = (
    ("title", "wallet"),
    ("available", "available", money),
    ("held", "held", money),
    ("total", "total", money),
    ("short", "below what it may be by", money),
    ("refundable", "can go back to cards", money),
    ("automatic", "tops itself up", _rule),
    ("ended_because", "tops itself up no more"),
    ("said", "cards"),
    ("account_id", "id"),
)
TOP_UP = (
    ("state", "state"),
    ("amount", "amount", money),
    ("url", "pay it at"),
    ("reason", "why not"),
    ("payment_id", "id"),
)
TOP_UPS = (
    ("asked_at", "asked for"),
    ("state", "state"),
    ("way", "how"),
    ("amount", "amount", money),
    ("reason", "why not"),
    ("payment_id", "id"),
)
METHODS = (("label", "card"), ("method", "id"))
REFUNDS = (
    ("asked_at", "asked for"),
    ("state", "state"),
    ("amount", "amount", money),
    ("reason", "reason"),
    ("refund_id", "id"),
)

Wallet = Annotated[
    UUID | None, typer.Option("--wallet", help="its id; left out where you have one alone")
]
Amount = Annotated[str, typer.Argument(help="such as 500 or 12.50")]
Refund = Annotated[UUID, typer.Argument(help="the id of a refund")]


class TopUpFailed(Problem):
    """A top-up that was waited for did not come about."""

    def __init__(self, top_up: Mapping[str, Any]) -> None:
        detail = f"Nothing was paid: {top_up['reason'] or 'the payment failed.'}"
        body = {"code": "top-up-failed", "detail": detail, "payment_id": top_up["payment_id"]}
        super().__init__(409, body)


def _found(session: Session, wallet: UUID | None) -> str:
    """Return which wallet is meant. Raises: typer.BadParameter where that has to be said."""
    if wallet is not None:
        return str(wallet)
    known = [row for row in session.client.all("accounts") if row["kind"] == "prepaid"]
    if len(known) == 1:
        return str(known[0]["account_id"])
    named = ", ".join(f"{row['title']} ({row['account_id']})" for row in known[:5])
    said = f"say which: {named}" if known else "there is none that you may see"
    raise typer.BadParameter(said, param_hint="--wallet")


@app.command()
def show(context: typer.Context, wallet: Wallet = None) -> None:
    """Show what is in a wallet, and how it is topped up."""
    session = session_of(context)
    shown = session.client.get(f"accounts/{_found(session, wallet)}/wallet")
    told = shown if session.printer.as_json else {**shown, "short": _some(shown["short"])}
    session.printer.facts(told, WALLET)


def _some(amount: str) -> str:
    """Return an amount that is any; empty for zero."""
    return amount if amount.strip("0.") else ""


@app.command("top-up")
def top_up(
    context: typer.Context,
    amount: Amount,
    currency: Annotated[str, typer.Option(help="of the wallet")] = "USD",
    method: Annotated[str, typer.Option(help="a saved card; see `wallet methods`")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="until it is paid, an hour at most")] = False,
    wallet: Wallet = None,
) -> None:
    """Top a wallet up: prints where to pay, or charges a saved card. Declined is exit code 4."""
    session = session_of(context)
    account = _found(session, wallet)
    asked = {"amount": amount, "currency": currency} | ({"method": method} if method else {})
    made = session.client.post(f"accounts/{account}/top-ups", asked)["payment_id"]
    session.printer.say(f"Asked for top-up {made}.")
    session.client.log.is_told = True
    there = f"accounts/{account}/top-ups/{made}"
    told = ""

    def tell(state: dict[str, Any]) -> None:
        nonlocal told
        if state["url"] and state["url"] != told:
            told = state["url"]
            session.printer.say(f"Pay it at {told}")

    def is_known(state: dict[str, Any]) -> bool:
        return state["state"] in OVER or (not method and not wait and bool(state["url"]))

    stands = "The top-up stands, and counts once it is paid."
    with told_if_left(session, stands, made, "offpeak wallet top-ups"):
        state = session.client.wait(
            there,
            is_known,
            seconds=3_600.0 if wait else PAGE_SECONDS,
            seen=tell if wait else lambda _: None,
            absent_at_first=True,
        )
    if state["state"] == "failed":
        raise TopUpFailed(state)
    session.printer.facts(state, TOP_UP)


@app.command("top-ups")
def top_ups(context: typer.Context, wallet: Wallet = None) -> None:
    """List the top-ups of a wallet, the newest first."""
    session = session_of(context)
    rows = session.client.all(f"accounts/{_found(session, wallet)}/top-ups")
    session.printer.table(rows, TOP_UPS, empty="No top-ups by card.")


@app.command()
def auto(
    context: typer.Context,
    below: Annotated[str | None, typer.Option(help="when less than that is available")] = None,
    amount: Annotated[str | None, typer.Option(help="add so much")] = None,
    most_per_day: Annotated[
        str | None, typer.Option("--most-per-day", help="but not more than that on a day (UTC)")
    ] = None,
    method: Annotated[str | None, typer.Option(help="with this saved card")] = None,
    off: Annotated[bool, typer.Option("--off", help="let it top itself up no more")] = False,
    wallet: Wallet = None,
) -> None:
    """Let a wallet top itself up, or no more."""
    session = session_of(context)
    given = {"below": below, "amount": amount, "most_per_day": most_per_day, "method": method}
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
    if off is not (len(missing) == len(given)):
        raise typer.BadParameter("either --off, or when, how much and with which card")
    if missing and not off:
        raise typer.BadParameter(f"{', '.join(missing)}: left out")
    place = f"accounts/{_found(session, wallet)}/automatic-top-up"
    if off:
        session.printer.done(session.client.delete(place), "It tops itself up no more.")
        return
    session.printer.done(session.client.put(place, given), "It tops itself up from now on.")


@app.command()
def methods(
    context: typer.Context,
    remove: Annotated[str, typer.Option("--remove", help="let this one be kept no longer")] = "",
    wallet: Wallet = None,
) -> None:
    """List the saved cards of a wallet, or remove one."""
    session = session_of(context)
    place = f"accounts/{_found(session, wallet)}/payment-methods"
    if remove:
        session.printer.done(session.client.delete(f"{place}/{remove}"), "It is used no more.")
        return
    session.printer.table(
        session.client.all(place),
        METHODS,
        empty="No saved cards. One is kept when a top-up is paid with it.",
    )


@app.command()
def refund(
    context: typer.Context,
    amount: Amount,
    reason: Annotated[str, typer.Option(help="why, for whoever approves it")],
    currency: Annotated[str, typer.Option(help="of the wallet")] = "USD",
    wallet: Wallet = None,
) -> None:
    """Ask to have unused money back; somebody else approves."""
    session = session_of(context)
    asked = {"amount": amount, "currency": currency, "reason": reason}
    done = session.client.post(f"accounts/{_found(session, wallet)}/refunds", asked)
    session.printer.done(done, f"Asked for refund {done['refund_id']}. Somebody else approves it.")


@app.command()
def refunds(context: typer.Context, wallet: Wallet = None) -> None:
    """List the refunds of a wallet, the newest first."""
    session = session_of(context)
    rows = session.client.all(f"accounts/{_found(session, wallet)}/refunds")
    session.printer.table(rows, REFUNDS, empty="No refunds.")


@app.command()
def approve(context: typer.Context, refund: Refund, wallet: Wallet = None) -> None:
    """Let a refund go out that somebody else asked for; the platform's finance people do."""
    session = session_of(context)
    place = f"accounts/{_found(session, wallet)}/refunds/{refund}/approve"
    session.printer.done(session.client.post(place), "Approved.")


@app.command()
def decline(context: typer.Context, refund: Refund, wallet: Wallet = None) -> None:
    """Leave a refund, or take back what you asked for."""
    session = session_of(context)
    place = f"accounts/{_found(session, wallet)}/refunds/{refund}/decline"
    session.printer.done(session.client.post(place), "Declined.")
