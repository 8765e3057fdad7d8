"""`offpeak`: the command line of the market."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Annotated

import typer

from . import bids, hosts, leases, market, money, offers, quotas_together, tokens
from .client import Client
from .printing import Printer
from .problems import Problem, Unreachable
from .session import Output, Session, fail
from .spoken import NotUnderstood

app = typer.Typer(
    name="offpeak",
    help="The market for GPU time. Exit codes: 0 done, 2 usage, 3 not found, 4 refused by a rule, "
    "5 not allowed, 6 timed out, 7 no answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("market")(market.market)
app.add_typer(offers.app, name="offers")
app.add_typer(bids.app, name="bids")
app.add_typer(leases.app, name="leases")
app.add_typer(quotas_together.app, name="quotas")
app.command("usage")(leases.usage)
app.command("statement")(money.statement)
app.command("export")(money.export)
app.add_typer(hosts.app, name="hosts")
app.add_typer(tokens.app, name="tokens")


@app.callback()
def connect(
    context: typer.Context,
    server: Annotated[
        str, typer.Option(envvar="OFFPEAK_SERVER", help="address of the market")
    ] = "http://127.0.0.1:8000",
    token: Annotated[
        str, typer.Option(envvar="OFFPEAK_TOKEN", help="API token, from the settings page")
    ] = "",
    output: Annotated[
        Output, typer.Option("-o", "--output", help="a table for people, JSON for programs")
    ] = Output.TABLE,
) -> None:
    """Remember which market, as whom, and how to print."""
    printer = Printer(as_json=output is Output.JSON)
    client = context.with_resource(Client(server, token))
    context.obj = Session(client, printer, server)


def main() -> None:
    """Run a command; whatever is refused becomes a sentence and an exit code."""
    words = sys.argv[1:]
    spelled = {"--output=json", "-ojson", "-o=json"} & set(words)
    apart = any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(words))
    as_json = bool(spelled) or apart
    try:
        app(prog_name="offpeak")
    except (Problem, Unreachable, NotUnderstood, TimeoutError) as error:
        fail(Printer(as_json=as_json), error)


if __name__ == "__main__":
    main()
