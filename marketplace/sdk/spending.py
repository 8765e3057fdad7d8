"""`offpeak spend` and `offpeak budgets`: what was spent, by whom, and what may be spent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import gpu_hours, money
from .printing import shown
from .session import session_of
from .spoken import NotUnderstood, moment_of

app = typer.Typer(
    help="Budgets: what may be spent in a period, and what happens before.", no_args_is_help=True
)

SPENT = (
    ("title", "of"),
    ("spent", "spent", money),
    ("storage", "of it for volumes", money),
    ("gpu_milliseconds", "GPU-hours", gpu_hours),
    ("leases", "leases"),
)
SAVED = (
    ("gpu", "GPU"),
    ("gpu_milliseconds", "GPU-hours", gpu_hours),
    ("paid", "paid", money),
    ("against_cloud", "saved against a cloud", money),
    ("against_dedicated", "against own GPUs", money),
)
BUDGETS = (
    ("title", "budget"),
    ("whose", "of"),
    ("period", "each"),
    ("spent", "spent", money),
    ("held", "held", money),
    ("limit", "limit", money),
    ("state", "state"),
    ("id", "id"),
)
ONE = (
    ("title", "budget"),
    ("whose", "of"),
    ("period", "each"),
    ("period_starts_at", "period from"),
    ("period_ends_at", "opens again"),
    ("amount", "amount", money),
    ("carried", "rolled over", money),
    ("granted", "granted", money),
    ("limit", "limit", money),
    ("spent", "spent", money),
    ("held", "held", money),
    ("left", "left", money),
    ("state", "state"),
    ("said", "thresholds"),
    ("expected", "forecast"),
    ("id", "id"),
)
GRANTS = (
    ("state", "state"),
    ("amount", "amount", money),
    ("starts_at", "from"),
    ("until", "until"),
    ("why", "why"),
    ("id", "id"),
)
By = Annotated[str, typer.Option(help="unit, person, project, kind, gpu, lease or tenant")]


def spend(
    context: typer.Context,
    by: By = "unit",
    since: Annotated[str | None, typer.Option(help="first day: 2026-11-01")] = None,
    until: Annotated[str | None, typer.Option(help="day after the last one")] = None,
    unit: Annotated[UUID | None, typer.Option(help="only of this unit")] = None,
    person: Annotated[UUID | None, typer.Option(help="only of this person")] = None,
    project: Annotated[str | None, typer.Option(help="only of this project")] = None,
    kind: Annotated[str | None, typer.Option(help="only of this kind of work")] = None,
    gpu: Annotated[str | None, typer.Option(help="only on this model of GPU")] = None,
    lease: Annotated[UUID | None, typer.Option(help="only of this lease")] = None,
) -> None:
    """Say what leases and volumes were charged, by the day of their use."""
    session = session_of(context)
    asked: dict[str, Any] = {"since": since, "until": until, "unit": unit, "person": person}
    asked |= {"project": project, "kind": kind, "gpu": gpu, "lease": lease}
    given = {name: value for name, value in asked.items() if value is not None}
    found = list(session.client.all("spending", by=by, **given))
    if not session.printer.as_json:
        for each in found:
            each["title"] = each["title"] or "(none)"
    session.printer.table(found, SPENT, empty="Nothing was charged.")


def saved(
    context: typer.Context,
    since: Annotated[str | None, typer.Option(help="first day: 2026-11-01")] = None,
    until: Annotated[str | None, typer.Option(help="day after the last one")] = None,
) -> None:
    """Say what pooling saved, against a cloud and against GPUs of one's own."""
    session = session_of(context)
    asked: dict[str, Any] = {"since": since, "until": until}
    given = {name: value for name, value in asked.items() if value is not None}
    found = session.client.all("spending/saved", **given)
    session.printer.table(found, SAVED, empty="Nothing was charged.")


@app.command("list")
def listed(context: typer.Context) -> None:
    """List budgets and how they stand."""
    session = session_of(context)
    found = list(session.client.all("budgets"))
    if not session.printer.as_json:
        found = [_told(each) for each in found]
    session.printer.table(found, BUDGETS, empty="No budgets.")


@app.command()
def show(context: typer.Context, budget: UUID) -> None:
    """Show one budget: its limit, what is used of it, and what it is likely to come to."""
    session = session_of(context)
    found = session.client.get(f"budgets/{budget}")
    session.printer.facts(found if session.printer.as_json else _told(found), ONE)


Each = Annotated[str, typer.Option(help="week, month, quarter or year")]
At = Annotated[
    list[str] | None, typer.Option("--at", help="threshold: 80=notify, 100=block, 100=pause")
]
RollOver = Annotated[str, typer.Option(help="none, unused, overspent or both")]
Unused = Annotated[int, typer.Option(help="the most that rolls over unused, %")]
Zone = Annotated[str, typer.Option(help="IANA time zone in which people read it")]


@app.command()
def make(
    context: typer.Context,
    title: str,
    amount: str,
    each: Each = "month",
    of: Annotated[
        str, typer.Option(help="tenant, unit=ID, person=ID, project=NAME or kind=NAME")
    ] = "tenant",
    at: At = None,
    roll_over: RollOver = "none",
    unused: Unused = 0,
    currency: Annotated[str, typer.Option(help="in which it counts")] = "USD",
    zone: Zone = "UTC",
) -> None:
    """Make a budget; without --at it tells at 80 and at 100 %."""
    session = session_of(context)
    scope, _, subject = of.partition("=")
    asked = {
        "title": title,
        "scope": scope,
        "subject": subject,
        "amount": amount,
        "currency": currency,
        "period": each,
        "roll_over": roll_over,
        "unused_percent": unused,
        "thresholds": [_threshold(said) for said in at or ("80=notify", "100=notify")],
        "zone": zone,
    }
    answer = session.client.post("budgets", asked)
    session.printer.done(answer, f"Made budget {answer['id']}.")


@app.command()
def change(
    context: typer.Context,
    budget: UUID,
    title: Annotated[str | None, typer.Option(help="another title")] = None,
    amount: Annotated[str | None, typer.Option(help="another amount")] = None,
    at: At = None,
    roll_over: Annotated[str | None, typer.Option(help="none, unused, overspent or both")] = None,
    unused: Annotated[int | None, typer.Option(help="the most that rolls over, %")] = None,
    zone: Annotated[str | None, typer.Option(help="IANA time zone")] = None,
) -> None:
    """Change a budget; what is not named stays."""
    session = session_of(context)
    known = session.client.get(f"budgets/{budget}")
    names = ("title", "scope", "subject", "amount", "currency", "period", "roll_over", "zone")
    asked = {name: known[name] for name in (*names, "unused_percent", "thresholds")}
    said: dict[str, Any] = {"title": title, "amount": amount, "roll_over": roll_over, "zone": zone}
    said["unused_percent"] = unused
    asked |= {name: value for name, value in said.items() if value is not None}
    if at:
        asked["thresholds"] = [_threshold(each) for each in at]
    answer = session.client.put(f"budgets/{budget}", asked)
    session.printer.done(answer, "Changed.")


@app.command()
def end(context: typer.Context, budget: UUID) -> None:
    """End a budget."""
    session = session_of(context)
    answer = session.client.delete(f"budgets/{budget}")
    session.printer.done(answer, "Ended.")


@app.command()
def grant(
    context: typer.Context,
    budget: UUID,
    amount: str,
    until: Annotated[str, typer.Option(help="+2d, 20:00, RFC 3339; in the same period")],
    why: Annotated[str, typer.Option(help="the reason")],
) -> None:
    """Raise a budget until then; of more than a tenth a second person decides."""
    session = session_of(context)
    now = datetime.now().astimezone()
    asked = {"amount": amount, "until": moment_of(until, now=now).isoformat(), "why": why}
    answer = session.client.post(f"budgets/{budget}/grants", asked)
    session.printer.done(answer, f"Granted, or asked for: {answer['id']}.")


@app.command()
def grants(context: typer.Context, budget: UUID) -> None:
    """List the grants of a budget, newest first."""
    session = session_of(context)
    found = session.client.all(f"budgets/{budget}/grants")
    session.printer.table(found, GRANTS, empty="No grants.")


@app.command()
def approve(context: typer.Context, budget: UUID, grant_id: UUID) -> None:
    """Approve a grant that somebody else asked for."""
    session = session_of(context)
    answer = session.client.post(f"budgets/{budget}/grants/{grant_id}/approve")
    session.printer.done(answer, "Approved.")


@app.command()
def decline(context: typer.Context, budget: UUID, grant_id: UUID) -> None:
    """Decline a grant."""
    session = session_of(context)
    answer = session.client.post(f"budgets/{budget}/grants/{grant_id}/decline")
    session.printer.done(answer, "Declined.")


def _threshold(said: str) -> dict[str, Any]:
    percent, _, action = said.partition("=")
    if not percent.isdecimal() or not action:
        raise NotUnderstood(f"--at {said}: say a percentage and what happens, such as 80=notify")
    return {"at_percent": int(percent), "action": action}


def _told(found: dict[str, Any]) -> dict[str, Any]:
    """Return a budget with what people are told of it."""
    told = found["forecast"]
    return {
        **found,
        "whose": f"{found['scope']} {found['subject']}".strip(),
        "state": f"blocks until {shown(found['period_ends_at'])}" if found["blocked"] else "open",
        "said": ", ".join(f"{one['at_percent']} % {one['action']}" for one in found["thresholds"]),
        "expected": f"{money(told['expected'], found)} ({money(told['low'], found)} to"
        f" {money(told['high'], found)})",
    }
