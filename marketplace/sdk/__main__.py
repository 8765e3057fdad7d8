"""`offpeak`: the command line of the market."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import (
    VERSION,
    access,
    accounts,
    bids,
    copying,
    costs,
    credit_notes,
    disputes,
    documents,
    ending,
    files,
    hosts,
    invoices,
    leases,
    logs,
    market,
    modules,
    money,
    notices,
    offers,
    organisations,
    payouts,
    quotas_together,
    spending,
    tokens,
    volumes,
    wallets,
    work_secrets,
)
from . import run as running
from .client import Client, Log
from .printing import NotPrinted, Printer
from .session import Output, Session

EVERYWHERE = ("-o", "--output", "--server", "--token")
"""Options of all commands, which may stand before or after the command's name."""


class Line(TyperGroup):
    """The whole command line: whatever ends a command becomes a sentence and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of all commands wherever they stand."""
        try:
            return super().parse_args(ctx, options_first(args))
        except NotPrinted as error:
            sys.exit(_end(ctx, error))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ending.Known as error:
            sys.exit(_end(ctx, error))
        except Exception as error:
            session = ctx.obj
            is_usage = hasattr(error, "exit_code")
            if is_usage or not isinstance(session, Session) or not session.client.log.done:
                raise
            sys.exit(_end(ctx, error))


def _end(ctx: Any, error: BaseException) -> int:
    session = ctx.obj
    if isinstance(session, Session):
        log = session.client.log
        return ending.end(session.printer, error, log, is_waiting=log.is_told)
    as_json = ctx.params.get("output") is Output.JSON
    return ending.end(Printer(as_json=as_json), error, Log(), is_waiting=False)


def options_first(args: list[str]) -> list[str]:
    """Return the words with the options of all commands before the first of them.

    What follows `--` is the command line of leased work and stays as it is.
    """
    end = args.index("--") if "--" in args else len(args)
    words = iter(args[:end])
    first, rest = [], []
    for word in words:
        name = word.partition("=")[0]
        if word in EVERYWHERE:
            first += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif name in EVERYWHERE[1:] or (word[:2] == "-o" and word[2:].lstrip("=") in list(Output)):
            first.append(word.replace("-o=", "-o") if word.startswith("-o=") else word)
        else:
            rest.append(word)
    return [*first, *rest, *args[end:]]


app = typer.Typer(
    cls=Line,
    name="offpeak",
    help="The market for GPU time. Exit codes: 0 done, 2 usage, 3 not found, 4 refused by a rule, "
    "5 not allowed, 6 timed out, 7 no answer, 8 done or read, but not shown, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("market")(market.market)
app.command("run", cls=running.WithCommand)(running.run)
app.command("modules")(modules.modules)
app.add_typer(offers.app, name="offers")
app.add_typer(bids.app, name="bids")
app.add_typer(leases.app, name="leases")
app.add_typer(files.app, name="files")
app.add_typer(volumes.app, name="volumes")
app.add_typer(work_secrets.app, name="secrets")
app.add_typer(notices.app, name="notices")
app.add_typer(notices.webhooks, name="webhooks")
app.add_typer(quotas_together.app, name="quotas")
app.command("cp")(copying.cp)
app.command("logs")(logs.logs)
app.command("ssh")(access.ssh)
app.command("port-forward")(access.port_forward)
app.command("usage")(leases.usage)
app.command("spend")(spending.spend)
app.command("saved")(spending.saved)
app.command("costs")(costs.costs)
app.command("owed")(costs.owed)
app.command("statement")(money.statement)
app.command("export")(money.export)
app.add_typer(costs.export_plans, name="export-plans")
app.command("earnings")(payouts.earnings)
app.add_typer(payouts.app, name="payouts")
app.add_typer(hosts.app, name="hosts")
app.add_typer(tokens.app, name="tokens")
app.add_typer(organisations.tenants, name="tenants")
app.add_typer(organisations.units, name="units")
app.add_typer(organisations.members, name="members")
app.add_typer(organisations.invitations, name="invitations")
app.add_typer(accounts.accounts, name="accounts")
app.add_typer(accounts.funds, name="funds")
app.add_typer(accounts.credit_limits, name="credit-limits")
app.add_typer(wallets.app, name="wallet")
app.add_typer(spending.app, name="budgets")
app.add_typer(invoices.app, name="invoices")
app.add_typer(credit_notes.app, name="credit-notes")
app.add_typer(disputes.app, name="disputes")
app.add_typer(documents.app, name="documents")


def _version(wanted: bool) -> None:
    if wanted:
        Printer(as_json=False).print(VERSION)
        raise typer.Exit()


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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="say it, and end")
    ] = False,
) -> None:
    """Remember which market, as whom, and how to print."""
    printer = Printer(as_json=output is Output.JSON)
    client = context.with_resource(Client(server, token))
    context.obj = Session(client, printer, server)


def main() -> None:
    """Run a command."""
    app(prog_name="offpeak")


if __name__ == "__main__":
    main()
