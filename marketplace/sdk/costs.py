"""`offpeak costs`, `owed` and `export-plans`: what finance people ask of all the books."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import gpu_hours, money
from .session import session_of

export_plans = typer.Typer(
    help="Exports that are brought to finance by themselves.", no_args_is_help=True
)

PARTS = (
    ("title", "of"),
    ("cost", "cost", money),
    ("gpu_milliseconds", "GPU-hours", gpu_hours),
    ("entries", "entries"),
)
TWO = (PARTS[0], ("then_title", "and of"), *PARTS[1:])
CELLS = (
    ("who", "owes"),
    ("other", "to"),
    ("gross", "charged", money),
    ("against", "owed back", money),
    ("left", "left", money),
)
NETTED = (("debtor", "owes"), ("creditor", "to"), ("amount", "amount", money))
PLANS = (
    ("every", "each"),
    ("formats", "forms"),
    ("folder", "folder"),
    ("due", "last due"),
    ("brought_at", "brought"),
    ("words", "why not"),
    ("plan_id", "id"),
)
Since = Annotated[str | None, typer.Option(help="first month: 2026-09")]
Period = Annotated[str | None, typer.Option(help="last month: 2026-11; this one otherwise")]


def costs(
    context: typer.Context,
    by: Annotated[
        str,
        typer.Option(
            help="unit, tenant, account, cost-centre, project, person, work, gpu, offer, lease,"
            " kind, sku, class, region, provider, month or day"
        ),
    ] = "unit",
    then: Annotated[str | None, typer.Option(help="tell each of these apart, too")] = None,
    since: Since = None,
    period: Period = None,
    only: Annotated[
        list[str] | None, typer.Option(help="only of it: project=llm-eval; may be repeated")
    ] = None,
) -> None:
    """Say what accounts were charged in some months, by anything."""
    session = session_of(context)
    asked = _given(since=since, period=period, then=then)
    for each in only or ():
        name, is_said, key = each.partition("=")
        if not is_said:
            raise typer.BadParameter("say what, such as project=llm-eval", param_hint="--only")
        asked[name] = key
    found = list(session.client.all("costs", by=by, **asked))
    if not session.printer.as_json:
        for one in found:
            one["title"], one["then_title"] = (
                one["title"] or "(none)",
                one["then_title"] or "(none)",
            )
    session.printer.table(found, TWO if then else PARTS, empty="Nothing was charged.")


def owed(
    context: typer.Context,
    since: Since = None,
    period: Period = None,
    netted: Annotated[
        bool, typer.Option("--netted", help="what is left between two organisations")
    ] = False,
) -> None:
    """Say who came to owe whom in some months."""
    session = session_of(context)
    address, columns = ("owed/netted", NETTED) if netted else ("owed", CELLS)
    found = list(session.client.all(address, **_given(since=since, period=period)))
    if not (netted or session.printer.as_json):
        for one in found:
            one["who"] = ", ".join(name for name in (one["unit"], one["tenant"]) if name)
            one["other"] = one["other"] or "(nobody yet)"
    session.printer.table(found, columns, empty="Nobody owes anybody.")


@export_plans.command("list")
def list_plans(context: typer.Context) -> None:
    """List what is brought by itself, and how the last time went."""
    session = session_of(context)
    session.printer.table(session.client.all("exports/plans"), PLANS, empty="No plans.")


@export_plans.command("make")
def make_plan(
    context: typer.Context,
    form: Annotated[list[str], typer.Argument(help="forms, such as focus-parquet and gl")],
    each: Annotated[
        str, typer.Option(help="day: the month so far; month: once it is closed")
    ] = "day",
    folder: Annotated[str, typer.Option(help="in the place that the operator set")] = "lake",
) -> None:
    """Have exports brought to a folder from now on; the platform's finance people do."""
    session = session_of(context)
    asked = {"every": each, "formats": form, "folder": folder}
    answer = session.client.post("exports/plans", asked)
    session.printer.done(answer, f"Brought from now on: {answer['plan_id']}.")


@export_plans.command("end")
def end_plan(
    context: typer.Context, plan: Annotated[UUID, typer.Argument(help="the id of a plan")]
) -> None:
    """Bring nothing by a plan any more."""
    session = session_of(context)
    answer = session.client.delete(f"exports/plans/{plan}")
    session.printer.done(answer, "Ended.")


def _given(**asked: str | None) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}
