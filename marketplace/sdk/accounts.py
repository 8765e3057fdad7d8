"""`offpeak accounts`, `funds`, `credit-limits`: what pays for a unit's use."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .organisations import Tenant, tenant_of
from .session import session_of

accounts = typer.Typer(help="Accounts that pay for units' use.", no_args_is_help=True)
funds = typer.Typer(help="Money that came in.", no_args_is_help=True)
credit_limits = typer.Typer(help="Credit limits of accounts.", no_args_is_help=True)

UNLIMITED = "unlimited"
"""What is typed for no limit."""


def limit(value: Any, entry: Any) -> str:
    """Return a credit limit with its currency; null is without limit."""
    return UNLIMITED if value is None else money(value, entry)


ACCOUNTS = (
    ("title", "account"),
    ("kind", "kind"),
    ("available", "available", money),
    ("held", "held", money),
    ("total", "total", money),
    ("overdraft", "credit limit", limit),
    ("account_id", "id"),
)
CREDIT_LIMITS = (
    ("title", "account"),
    ("kind", "kind"),
    ("overdraft", "credit limit", limit),
    ("available", "available", money),
    ("account_id", "id"),
)
FORECAST = (
    ("left", "left", money),
    ("there", "was there", money),
    ("used_ppm", "used, ppm"),
    ("per_hour", "runs for, per hour", money),
    ("lasts_until", "lasts until"),
)
WAITS = (
    ("bid_id", "behind bid"),
    ("lease_id", "paused lease"),
    ("account", "account"),
    ("needs", "needs", money),
    ("missing", "top up", money),
    ("since", "since"),
    ("until", "until"),
    ("budget", "budget"),
    ("opens_at", "opens again"),
)
Limit = Annotated[str, typer.Argument(help="an amount such as 500, or unlimited for chargeback")]


@accounts.command("list")
def list_accounts(context: typer.Context, tenant: Tenant = None) -> None:
    """List the accounts of an organisation with their balances."""
    session = session_of(context)
    rows = session.client.all(f"tenants/{tenant_of(session, tenant)}/accounts")
    session.printer.table(rows, ACCOUNTS, empty="No accounts.")


@accounts.command("forecast")
def forecast(
    context: typer.Context,
    account: Annotated[UUID, typer.Argument(help="its id")],
) -> None:
    """Show what is left of an account, and how long it lasts for what runs and goes on."""
    session = session_of(context)
    session.printer.facts(session.client.get(f"accounts/{account}/forecast"), FORECAST)


@accounts.command("waiting")
def waiting(context: typer.Context) -> None:
    """List work that waits for money, and how much it takes to let it go on."""
    session = session_of(context)
    rows = session.client.all("money-waits")
    session.printer.table(rows, WAITS, empty="No work waits for money.")


@accounts.command("open")
def open_account(
    context: typer.Context,
    unit: Annotated[UUID, typer.Argument(help="the unit whose use it pays")],
    title: Annotated[str, typer.Option(help="what statements call it")],
    kind: Annotated[str, typer.Option(help="prepaid or chargeback")] = "prepaid",
    budget: Annotated[
        str, typer.Option(help="credit limit; unlimited only for chargeback accounts")
    ] = "0",
    currency: Annotated[str, typer.Option(help="of the organisation")] = "USD",
    tenant: Tenant = None,
) -> None:
    """Open the account of a unit; finance people and operators of the platform do."""
    session = session_of(context)
    asked = {
        "tenant_id": tenant_of(session, tenant),
        "subscriber_id": str(unit),
        "kind": kind,
        "title": title,
        "currency": currency,
        "overdraft": None if budget == UNLIMITED else budget,
    }
    made = session.client.post("accounts", asked)
    session.printer.facts(made, (("account_id", "account"),))


@funds.command("add")
def add_funds(
    context: typer.Context,
    account: Annotated[UUID, typer.Argument(help="its id")],
    amount: Annotated[str, typer.Argument(help="such as 500 or 12.50")],
    reference: Annotated[str, typer.Option(help="of the payment; each is credited once")],
    currency: Annotated[str, typer.Option(help="of the account")] = "USD",
) -> None:
    """Add a payment that came in; finance people and operators of the platform do."""
    session = session_of(context)
    asked = {"amount": amount, "currency": currency, "reference": reference}
    done = session.client.post(f"accounts/{account}/funds", asked)
    session.printer.done(done, "Added.")


@credit_limits.command("list")
def list_credit_limits(context: typer.Context, tenant: Tenant = None) -> None:
    """List the credit limits of an organisation's accounts."""
    session = session_of(context)
    rows = session.client.all(f"tenants/{tenant_of(session, tenant)}/accounts")
    paying = [row for row in rows if row["kind"] in ("prepaid", "chargeback")]
    session.printer.table(paying, CREDIT_LIMITS, empty="No accounts that pay.")


@credit_limits.command("set")
def set_credit_limit(
    context: typer.Context,
    account: Annotated[UUID, typer.Argument(help="its id")],
    amount: Limit,
) -> None:
    """Set the credit limit of an account; only the platform can raise it."""
    session = session_of(context)
    asked = {"overdraft": None if amount == UNLIMITED else amount}
    done = session.client.put(f"accounts/{account}/budget", asked)
    session.printer.done(done, "Set.")
