"""`offpeak quotas`: who has how many GPUs of their own, and how that is decided."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import percent
from .session import Session, session_of
from .spoken import length_of, moment_of
from .whole_numbers import whole

app = typer.Typer(
    help="Quotas: cohorts, nominal quota, borrowing and lending, limits, fair shares.",
    no_args_is_help=True,
)

STANDINGS = (
    ("gpu_class", "class"),
    ("cohort", "in"),
    ("node", "unit or cohort"),
    ("nominal", "nominal"),
    ("borrowing", "borrows"),
    ("lending", "lends"),
    ("gpu_hours", "guaranteed, h"),
    ("used", "used"),
    ("borrowed", "borrowed"),
    ("available", "available"),
)
LOG = (("at", "when"), ("kind", "policy"), ("said", "says"), ("why", "why"), ("who", "who"))
ALLOWED = (("who", "who"), ("what", "what"), ("gpu_class", "class"), ("allowed", "allowed"))
OVERRIDES = (
    ("id", "override"),
    ("node", "unit or cohort"),
    ("gpu_class", "class"),
    ("nominal", "nominal"),
    ("starts_at", "from"),
    ("ends_at", "to"),
    ("why", "why"),
)
PLACED = (
    ("who", "cohort or unit"),
    ("place_before", "place"),
    ("place_after", "with them"),
    ("share_before", "share"),
    ("share_after", "with them"),
)
NO_PLACE = "Everybody would keep their place."
CHANGES = (("id", "bid or lease"), ("unit", "unit"), ("before", "before"), ("after", "after"))

Market = Annotated[
    str | None, typer.Option("--market", help="which market; left out: the installation's own")
]
Why = Annotated[str, typer.Option(help="the reason, for the log")]
Figure = Annotated[
    int | None, typer.Option(help="left out: not set, which is not 0", parser=whole(0))
]


@app.command("list")
def list_quotas(context: typer.Context, market: Market = None) -> None:
    """Show quota and use of cohorts and your units."""
    session = session_of(context)
    session.printer.table(
        session.client.all("quotas", market=market),
        STANDINGS,
        empty="No quotas are set: price and time alone decide.",
    )


@app.command("log")
def policy_log(context: typer.Context, market: Market = None) -> None:
    """Show every policy that concerns you: who set it, when, and why."""
    session = session_of(context)
    rows = [
        {**each, "said": _in_words(each["policy"])}
        for each in session.client.all("quotas/log", market=market)
    ]
    session.printer.table(rows, LOG, empty="No policy was set yet.")


@app.command()
def cohort(
    context: typer.Context,
    name: str,
    parent: Annotated[str | None, typer.Option(help="the cohort it is a member of")] = None,
    tenant: Annotated[UUID | None, typer.Option(help="whose grant it is")] = None,
    why: Why = "",
    market: Market = None,
) -> None:
    """Make a cohort, or move it."""
    _set(context, market, "cohorts", cohort=name, parent=parent, tenant_id=tenant, why=why)


@app.command()
def unit(
    context: typer.Context,
    subscriber: UUID,
    cohort: Annotated[str | None, typer.Option(help="left out: no cohort")] = None,
    why: Why = "",
    market: Market = None,
) -> None:
    """Put a business unit into a cohort."""
    _set(context, market, "units", subscriber_id=subscriber, cohort=cohort, why=why)


@app.command("set")
def set_quota(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="a cohort's name or a business unit's id")],
    gpu_class: Annotated[str, typer.Argument(help="a model or kind such as H100, or any")],
    nominal: Figure = None,
    borrowing: Figure = None,
    lending: Figure = None,
    gpu_hours: Figure = None,
    why: Why = "",
    market: Market = None,
) -> None:
    """Set the quota of a unit or cohort; what is left out is not set."""
    figures = {"nominal": nominal, "borrowing": borrowing, "lending": lending}
    _set(
        context, market, "", node=node, gpu_class=gpu_class, gpu_hours=gpu_hours, why=why, **figures
    )


@app.command()
def override(
    context: typer.Context,
    node: str,
    gpu_class: str,
    start: Annotated[str, typer.Option("--from", help="now, +2h, 20:00, RFC 3339")],
    length: Annotated[str, typer.Option("--for", help="how long: 10h")],
    nominal: Figure = None,
    borrowing: Figure = None,
    lending: Figure = None,
    gpu_hours: Figure = None,
    why: Why = "",
    market: Market = None,
) -> None:
    """Set another quota between two moments."""
    figures = {"nominal": nominal, "borrowing": borrowing, "lending": lending}
    span = _span(start, length)
    common = {"node": node, "gpu_class": gpu_class, "gpu_hours": gpu_hours, "why": why}
    _set(context, market, "overrides", **common, **figures, **span)


@app.command()
def lift(context: typer.Context, override_id: UUID, why: Why = "", market: Market = None) -> None:
    """End an override before its time."""
    session = session_of(context)
    body = _said(why=why, market=market)
    session.printer.json(session.client.delete(f"quotas/overrides/{override_id}", body))


@app.command()
def limit(
    context: typer.Context,
    scope: Annotated[str, typer.Argument(help="bid, user, subscriber or tenant")],
    subject: Annotated[UUID | None, typer.Option(help="whose; left out: each one's")] = None,
    tenant: Annotated[UUID | None, typer.Option(help="for whose people or units")] = None,
    gpus: Figure = None,
    memory_mib: Figure = None,
    gpu_hours: Figure = None,
    money: Annotated[str | None, typer.Option(help="such as 500.00")] = None,
    period: Annotated[str, typer.Option(help="day, week or month")] = "week",
    why: Why = "",
    market: Market = None,
) -> None:
    """Limit bids, users, business units or organisations."""
    _set(
        context,
        market,
        "limits",
        scope=scope,
        subject=subject,
        tenant_id=tenant,
        gpus=gpus,
        memory_mib=memory_mib,
        gpu_hours=gpu_hours,
        money=money,
        period=period,
        why=why,
    )


@app.command()
def weight(
    context: typer.Context,
    node: str,
    ppm: Annotated[int, typer.Argument(help="1000000 counts once", parser=whole(0))],
    why: Why = "",
    market: Market = None,
) -> None:
    """Set how much the use of a unit, or of all in a cohort, counts against what is beside it."""
    _set(context, market, "weights", node=node, weight_ppm=ppm, why=why)


@app.command("half-life")
def half_life(context: typer.Context, length: str, why: Why = "", market: Market = None) -> None:
    """Set the half-life of past use: 2d."""
    _set(context, market, "half-life", seconds=length_of(length), why=why)


@app.command("least-run")
def least_run(
    context: typer.Context,
    length: Annotated[
        str | None, typer.Argument(help="how long: 30m; left out: show what is in force")
    ] = None,
    gpu_class: Annotated[
        str | None, typer.Option("--class", help="of these GPUs and parts of them; else of all")
    ] = None,
    lift: Annotated[bool, typer.Option("--lift", help="the class has none of its own")] = False,
    firm: Annotated[
        bool, typer.Option("--firm", help="how much of work is done before it may be paused")
    ] = False,
    why: Why = "",
    market: Market = None,
) -> None:
    """Set, or show, how long a lease runs at least before another bid may interrupt it."""
    if length is not None or lift:
        seconds = None if length is None else length_of(length)
        said = {
            "seconds": seconds,
            "gpu_class": gpu_class,
            "lift": lift or None,
            "firm": firm or None,
        }
        _set(context, market, "least-run", **said, why=why)
        return
    session = session_of(context)
    found = session.client.get("quotas/least-run", market=market)
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.say(f"No lease is interrupted before it ran {found['seconds']} s.")
    for each in found["classes"]:
        session.printer.say(f"None of {each['gpu_class']} before it ran {each['seconds']} s.")
    if (firm_seconds := found.get("firm_seconds")) is not None:
        session.printer.say(f"No work is paused before {firm_seconds} s of it are done.")


@app.command()
def counting(
    context: typer.Context,
    counts: Annotated[
        str | None, typer.Argument(help="whole or parts; left out: show what is in force")
    ] = None,
    why: Why = "",
    market: Market = None,
) -> None:
    """Set, or show, how quotas and limits count a part of a card: as one GPU, or as the part."""
    if counts is not None:
        _set(context, market, "counting", counts=counts, why=why)
        return
    session = session_of(context)
    found = session.client.get("quotas/counting", market=market)
    if session.printer.as_json:
        session.printer.json(found)
        return
    as_what = "the part of it that it is" if found["counts"] == "parts" else "a whole GPU"
    session.printer.say(f"A part of a card counts as {as_what}.")


@app.command()
def period(
    context: typer.Context,
    length: Annotated[str, typer.Argument(help="how long: 7d")],
    start: Annotated[str, typer.Option("--from", help="when one of them starts")],
    why: Why = "",
    market: Market = None,
) -> None:
    """Set in which spans guaranteed GPU-hours are counted."""
    starts_at = moment_of(start, now=datetime.now().astimezone()).isoformat()
    _set(context, market, "period", seconds=length_of(length), starts_at=starts_at, why=why)


@app.command()
def allow(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="list, lease or borrow")],
    gpu_class: str,
    who: Annotated[
        str | None, typer.Option(help="a unit, cohort or tenant; to list: a tenant")
    ] = None,
    forbid: Annotated[bool, typer.Option("--forbid", help="no longer")] = False,
    why: Why = "",
    market: Market = None,
) -> None:
    """Let somebody list, lease or borrow GPUs of a class, or no longer.

    To list, a class of cards holds for their MIG instances and shares, too.
    """
    common = {"gpu_class": gpu_class, "allowed": not forbid, "why": why}
    if what == "list":
        _set(context, market, "listings", tenant_id=who, **common)
    else:
        _set(context, market, "uses", who=who, what=what, **common)


@app.command()
def allowed(context: typer.Context, market: Market = None) -> None:
    """Show who may, or may not, list, lease or borrow what."""
    session = session_of(context)
    found = [
        *session.client.all("quotas/listings", market=market),
        *session.client.all("quotas/uses", market=market),
    ]
    session.printer.table(found, ALLOWED, empty="Everybody may list, lease and borrow everything.")


@app.command()
def overrides(context: typer.Context, market: Market = None) -> None:
    """List the overrides that are or will be in force."""
    session = session_of(context)
    session.printer.table(
        session.client.all("quotas/overrides", market=market), OVERRIDES, empty="There are none."
    )


@app.command("try")
def try_quota(
    context: typer.Context,
    node: str,
    gpu_class: str,
    nominal: Figure = None,
    borrowing: Figure = None,
    lending: Figure = None,
    gpu_hours: Figure = None,
    market: Market = None,
) -> None:
    """Say what a quota would change now, without setting it."""
    session = session_of(context)
    figures = {"nominal": nominal, "borrowing": borrowing, "lending": lending}
    quota = _said(node=node, gpu_class=gpu_class, gpu_hours=gpu_hours, **figures)
    asked = _said(market=market, policies=[{"kind": "quota", **quota}])
    found = session.client.ask("quotas/trials", asked)
    if session.printer.as_json:
        session.printer.json(found)
        return
    changes = [
        {**each, "id": each.get("bid_id") or each.get("lease_id")}
        for each in (*found["bid_changes"], *found["lease_changes"])
    ]
    session.printer.table(changes, CHANGES, empty="No bid and no lease would fare otherwise.")
    before, after = found["admitted_before"], found["admitted_after"]
    session.printer.say(f"Of {found['bids']} open bids {before} fit now, {after} would.")
    session.printer.table(places_of(found), PLACED, empty=NO_PLACE)


def places_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cohorts and units that come earlier or later then, or have another share."""
    placed = [
        {
            "who": each["cohort"],
            "place_before": each["turn_before"],
            "place_after": each["turn_after"],
            "share_before": each["share_before"],
            "share_after": each["share_after"],
        }
        for each in found.get("cohorts", ())
    ] + [{**each, "who": each["unit"]} for each in found["queues"]]
    return [
        each
        for each in placed
        if (each["place_before"], each["share_before"])
        != (each["place_after"], each["share_after"])
    ]


def _in_words(policy: dict[str, Any]) -> str:
    """Return what a policy says, without what the other columns say."""
    left_out = {"market", "at", "why"}
    said = {name: value for name, value in policy.items() if name not in left_out}
    words = [
        f"{name.removesuffix('_ppm')} {percent(value, {}) if name.endswith('_ppm') else value}"
        for name, value in said.items()
        if value is not None
    ]
    return ", ".join(words)


def _span(start: str, length: str) -> dict[str, str]:
    starts_at = moment_of(start, now=datetime.now().astimezone())
    ends_at = datetime.fromtimestamp(starts_at.timestamp() + length_of(length)).astimezone()
    return {"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}


def _said(**fields: Any) -> dict[str, Any]:
    """Return the fields that are set, ids as text."""
    return {
        name: str(value) if isinstance(value, UUID) else value
        for name, value in fields.items()
        if value is not None
    }


def _set(context: typer.Context, market: str | None, path: str, **fields: Any) -> None:
    session: Session = session_of(context)
    body = _said(market=market, **fields)
    session.printer.json(session.client.post(f"quotas/{path}".rstrip("/"), body))
