"""`offpeak offers`: put idle GPUs on the market."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money, percent
from .session import Yes, confirm, session_of
from .spoken import length_of, moment_of, whole_of
from .whole_numbers import whole

_DIGITS = re.compile(r"[0-9]{1,9}")
_SLA_STEP = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)=(\d{1,3}(?:\.\d{1,4})?)")
_PART = re.compile(r"([0-9]{1,7})(MiB|GiB)(?:@([0-9]{1,3})%?)?")

app = typer.Typer(help="Offers: idle windows of your GPUs.", no_args_is_help=True)

COLUMNS = (
    ("id", "offer"),
    ("state", "state"),
    ("host_id", "host"),
    ("floor", "floor per GPU-hour", money),
    ("starts_at", "from"),
    ("ends_at", "to"),
)
ONE = (
    *COLUMNS,
    ("notice_seconds", "notice, s"),
    ("grace_seconds", "grace, s"),
    ("reclaim_fee_ppm", "reclaim fee", percent),
    ("lease_min_seconds", "shortest lease, s"),
    ("actions", "what you may do"),
)
REMOVED = (
    ("reason", "in the way"),
    ("bids", "bids"),
    ("gpus", "GPUs wanted"),
    ("limit", "up to", money),
)
CHANGES = (
    ("what", "change"),
    ("floor", "floor per GPU-hour", money),
    ("duration_seconds", "length, s"),
    ("starts_at", "from"),
    ("bids", "bids served"),
    ("together", "with others"),
    ("limit", "up to", money),
)
UNSOLD = (
    ("waiting", "bids that wait"),
    ("fitting", "it could serve"),
    ("in_time", "in time, at some price"),
    ("together", "of these, only with other offers"),
    ("floor", "floor per GPU-hour", money),
    ("floor_needed", "floor needed", money),
)
HOSTS = (("id", "host"), ("title", "name"), ("state", "state"), ("region", "region"))


Fee = Annotated[
    int, typer.Option(parser=whole(0), help="share of the lost value that a reclaim pays, ppm")
]


@app.command()
def hosts(context: typer.Context) -> None:
    """List your hosts."""
    session = session_of(context)
    session.printer.table(
        session.client.all("hosts"),
        HOSTS,
        empty="No hosts. Try: offpeak hosts add NAME --region eu",
    )


@app.command("list")
def list_offers(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="listed, paused, withdrawn or expired")] = None,
) -> None:
    """List your offers, newest first."""
    session = session_of(context)
    session.printer.table(
        session.client.all("offers", state=state),
        COLUMNS,
        empty="No offers. Try: offpeak offers publish HOST --from 20:00 --for 10h --floor 1.50",
    )


@app.command()
def publish(
    context: typer.Context,
    host: UUID,
    start: Annotated[str, typer.Option("--from", help="now, +2h, 20:00, RFC 3339")],
    length: Annotated[str, typer.Option("--for", help="how long: 10h")],
    floor: Annotated[str, typer.Option(help="least per GPU-hour, such as 1.50")],
    gpus: Annotated[list[str] | None, typer.Option("--gpu", help="UUID; else all")] = None,
    notice: Annotated[str, typer.Option(help="between a reclaim and the loss: 5m")] = "5m",
    grace: Annotated[
        str | None,
        typer.Option(help="from the signal to stop to the kill, within the notice: 60s; else 15s"),
    ] = None,
    fee: Fee = 0,
    cleaning: Annotated[str, typer.Option(help="free after each lease: 0m, 10m")] = "0m",
    shares: Annotated[
        str | None,
        typer.Option(
            help="divide each GPU: mps:4, timeslice:2, mps:40GiB@60,20GiB@25, mig:3g.40gb,2g.20gb, "
            "mig:7x1g.10gb"
        ),
    ] = None,
    by_demand: Annotated[
        list[str] | None,
        typer.Option(
            help="a form that the market may choose, and its floor: whole=2.00, mps:4=0.60; "
            "twice at least, it begins with the first"
        ),
    ] = None,
    form_min: Annotated[str, typer.Option(help="stay in a form so long at least: 1h")] = "1h",
    step: Annotated[
        list[str] | None,
        typer.Option(help="cheaper with more notice: 24h=0 or 1h=50000 (ppm); may be repeated"),
    ] = None,
) -> None:  # fmt: skip
    """List an idle window."""
    session = session_of(context)
    starts_at = moment_of(start, now=datetime.now().astimezone().replace(microsecond=0))
    seconds = length_of(length)
    uuids = gpus or [gpu["uuid"] for gpu in session.client.get(f"hosts/{host}")["gpus"]]
    ends_at = datetime.fromtimestamp(starts_at.timestamp() + seconds).astimezone()
    asked: dict[str, Any] = {
        "host_id": str(host),
        "gpu_uuids": uuids,
        "windows": [{"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}],
        "floor": floor,
        "cleaning_seconds": length_of(cleaning),
        "notice_seconds": length_of(notice),
        "reclaim_fee_ppm": fee,
        "reclaim_steps": sorted(map(_step, step or []), key=lambda one: one["notice_seconds"]),
    }
    if grace is not None:
        asked["grace_seconds"] = length_of(grace)
    if shares is not None:
        asked["shares"] = _shares(shares)
    if by_demand:
        forms = list(map(_form, by_demand))
        asked["by_demand"] = {"forms": forms, "form_min_seconds": length_of(form_min)}
    done = session.client.post("offers", asked)
    session.printer.facts(session.client.get(f"offers/{done['id']}", after=done["position"]), ONE)


def _shares(text: str) -> dict[str, Any]:
    """Read `mps:4`: four equal shares; `mps:40GiB@60,20GiB@25`: memory and percent of compute.

    `mig:3g.40gb,2g.20gb`: MIG instances; `mig:7x1g.10gb`: seven of one profile.
    """
    kind, _, rest = text.partition(":")
    if kind == "mig":
        many = [part.strip().rpartition("x") for part in rest.split(",")]
        if not all((_DIGITS.fullmatch(times) or not times) and name for times, _, name in many):
            raise typer.BadParameter(f"Write mig:3g.40gb,2x2g.20gb, not {text!r}.")
        profiles = [name for times, _, name in many for _ in range(min(int(times or 1), 99))]
        return {"kind": kind, "profiles": profiles}
    if _DIGITS.fullmatch(rest):
        return {"kind": kind, "count": int(rest)}
    parts = []
    for part in rest.split(","):
        form = _PART.fullmatch(part.strip())
        if form is None:
            raise typer.BadParameter(
                f"Write shares as mps:4 or mps:40GiB@60,20GiB@25, not {text!r}."
            )
        memory_mib = int(form[1]) * (1 if form[2] == "MiB" else 1024)
        parts.append(
            {"memory_mib": memory_mib} | ({"compute_percent": int(form[3])} if form[3] else {})
        )
    return {"kind": kind, "parts": parts}


def _form(text: str) -> dict[str, Any]:
    """Read `whole=2.00` or `mps:4=0.60`: a way to divide, and its floor, if it has its own."""
    way, _, floor = text.partition("=")
    form: dict[str, Any] = {"shares": None if way == "whole" else _shares(way)}
    return form | ({"floor": floor} if floor else {})


def _step(text: str) -> dict[str, int]:
    """Read `24h=0`: with at least 24 hours of notice a reclaim pays nothing."""
    length, _, fee = text.partition("=")
    try:
        return {"notice_seconds": length_of(length), "fee_ppm": whole_of(fee)}
    except ValueError:
        wrong = f"Write a step as notice=ppm, such as 24h=0, not {text!r}."
        raise typer.BadParameter(wrong) from None


@app.command()
def reprice(
    context: typer.Context,
    offer: UUID,
    floor: Annotated[str, typer.Argument(help="least per GPU-hour, such as 1.50")],
) -> None:
    """Set another floor for leases to come; those granted keep their price."""
    currency = session_of(context).client.get(f"offers/{offer}")["currency"]
    _change(context, offer, {"floor": floor, "currency": currency})


@app.command()
def terms(
    context: typer.Context,
    offer: UUID,
    notice: Annotated[str | None, typer.Option(help="between a reclaim and the loss: 30m")] = None,
    grace: Annotated[
        str | None, typer.Option(help="from the signal to stop to the kill, within it: 60s")
    ] = None,
    fee: Annotated[
        int | None,
        typer.Option(parser=whole(0), help="share of the lost value that a reclaim pays, ppm"),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(help="lower fee with longer notice: 24h=0; repeatable; replaces all"),
    ] = None,
    lease_min: Annotated[str | None, typer.Option(help="no shorter lease: 30m")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="an allowed kind of workload; repeatable; replaces all"),
    ] = None,
) -> None:
    """Set other terms for leases to come; those granted keep theirs. What is not said stays."""
    asked: dict[str, Any] = {
        f"{name}_seconds": length_of(length)
        for name, length in (("notice", notice), ("grace", grace), ("lease_min", lease_min))
        if length is not None
    }
    if fee is not None:
        asked["reclaim_fee_ppm"] = fee
    if step:
        steps = [] if step == ["none"] else map(_step, step)
        asked["reclaim_steps"] = sorted(steps, key=lambda one: one["notice_seconds"])
    if only:
        asked["workload_kinds"] = [] if only == ["anything"] else only
    if not asked:
        raise typer.BadParameter("Say what is to change, such as --notice 30m.")
    _change(context, offer, asked)


@app.command()
def sla(
    context: typer.Context,
    offer: UUID,
    start_by: Annotated[
        str | None, typer.Option(help="from a lease's begin to the start of its work: 2m")
    ] = None,
    late_credit: Annotated[
        int | None, typer.Option(parser=whole(0), help="of its charge for a later start, ppm")
    ] = None,
    below: Annotated[
        list[str] | None,
        typer.Option(help="available for less, credited so much: 99.9=10, percent; repeatable"),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="promise nothing any more")] = False,
) -> None:
    """Promise a level of service to leases to come, with a credit where it is missed."""
    session = session_of(context)
    path = f"offers/{offer}/sla"
    if nothing:
        session.printer.done(session.client.delete(path), "Nothing is promised any more.")
        return
    asked: dict[str, Any] = {"steps": [_sla_step(step) for step in below or []]}
    if start_by is not None:
        asked |= {"start_by_seconds": length_of(start_by), "late_credit_ppm": late_credit or 0}
    session.printer.done(session.client.put(path, asked), "Promised.")


def _sla_step(text: str) -> dict[str, int]:
    """Read `99.9=10`. Raises: BadParameter."""
    found = _SLA_STEP.fullmatch(text)
    if found is None:
        raise typer.BadParameter("Write availability and credit in percent, such as 99.9=10.")
    below, credit = (int(Decimal(percent) * 10_000) for percent in found.groups())
    return {"below_ppm": below, "credit_ppm": credit}


@app.command()
def pause(context: typer.Context, offer: UUID) -> None:
    """Give no new leases for now."""
    _ask(context, offer, "pause")


@app.command()
def resume(context: typer.Context, offer: UUID) -> None:
    """Give new leases again."""
    _ask(context, offer, "resume")


@app.command()
def withdraw(context: typer.Context, offer: UUID, yes: Yes = False) -> None:
    """Take an offer off the market; leases run on to their end."""
    confirm(session_of(context), f"Withdraw offer {offer} for good?", yes=yes)
    _ask(context, offer, "withdraw")


@app.command()
def explain(context: typer.Context, offer: UUID) -> None:
    """Explain why an offer is not leased: what excludes which bids, and what would help."""
    session = session_of(context)
    answer = session.client.get(f"offers/{offer}/explain")
    if session.printer.as_json:
        session.printer.json(answer)
        return
    if not answer["listed"]:
        session.printer.say("It is not on the market any more.")
        return
    paid = {"currency": answer.get("currency")}
    removed = [
        {**paid, **each, "reason": each["reason"] or "nothing"} for each in answer["removed"]
    ]
    changes = [{**paid, **each} for each in answer["changes"]]
    session.printer.table(removed, REMOVED, empty="No bid is waiting.")
    session.printer.table(changes, CHANGES, empty="No single change would help.")
    session.printer.facts(answer, UNSOLD)


def _change(context: typer.Context, offer: UUID, asked: dict[str, Any]) -> None:
    session = session_of(context)
    done = session.client.patch(f"offers/{offer}", asked)
    session.printer.facts(session.client.get(f"offers/{offer}", after=done["position"]), ONE)


def _ask(context: typer.Context, offer: UUID, verb: str) -> None:
    session = session_of(context)
    done = session.client.post(f"offers/{offer}/{verb}")
    session.printer.facts(session.client.get(f"offers/{offer}", after=done["position"]), ONE)
