"""`offpeak bids`: ask for GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from .fetching import Fetch, FetchSecret
from .forms import money, percent
from .idle import Idle, idle_seconds
from .printing import NotPrinted
from .promised import Availability, StartsWithin, say_promises, with_conditions
from .session import Session, session_of
from .spoken import length_of, moment_of
from .volumes import Mounted, mounted, mounts_of
from .waiting import LEASE, wait_for_lease
from .whole_numbers import whole

app = typer.Typer(help="Bids: what you ask for, and what you pay at most.", no_args_is_help=True)

COLUMNS = (
    ("id", "bid"),
    ("state", "state"),
    ("query", "needs"),
    ("gpus", "GPUs"),
    ("limit", "limit per GPU-hour", money),
    ("deadline", "deadline"),
    ("lease_id", "lease"),
    ("reason.text", "not matched because"),
)
WAITS = ("deadline", "immediate-or-cancel", "fill-or-kill")
ONE = (
    *COLUMNS,
    ("gpus_min", "GPUs at least"),
    ("budget", "budget", money),
    ("good_till", "good till"),
    ("auto_extend_until", "extends until"),
    ("repeat_until", "repeats until"),
    ("resume", "resumes if interrupted"),
    ("pausable", "may be paused"),
    ("pauses", "was paused before"),
    ("done_seconds", "seconds done before"),
    ("workload.checkpoint_seconds", "checkpoint every, s"),
    ("workload.image", "image"),
    ("workload.inputs", "inputs"),
    ("workload.fetch", "its host fetches"),
    ("workload.outputs", "outputs"),
    ("workload.secrets", "secrets"),
    ("workload.secret_variables", "of these as variables"),
    ("workload.volumes", "volumes", mounted),
    ("workload.end_when_idle_seconds", "ends when idle, s"),
    ("workload.project", "project"),
    ("chain.number", "bid in its series"),
    ("chain.ended_because", "series ended because"),
    ("earliest_start", "not before"),
    ("service_class", "class"),
    ("seeks", "prefers"),
    ("cost_centre", "cost centre"),
    ("actions", "what you may do"),
)
CHAIN = (
    ("chain.number", "number"),
    ("id", "bid"),
    ("state", "state"),
    ("duration_seconds", "seconds"),
    ("chain.resumes_lease_id", "resumes lease"),
    ("lease_id", "lease"),
    ("chain.ended_because", "series ended because"),
)
CONSIDERED = (
    ("market", "market"),
    ("price", "price per GPU-hour", money),
    ("starts_at", "starts"),
    ("fitting", "GPUs that fit"),
    ("wanted", "wanted by others"),
)
ROUTE = (("market", "went to"), ("because", "because"), ("market_now", "is in"))
MOVES = (("market", "moved from"), ("to", "to"), ("at", "at"))
QUOTE = (
    ("matched", "would be matched"),
    ("price", "price per GPU-hour", money),
    ("starts_at", "starts"),
    ("ends_at", "ends"),
    ("gpus", "GPUs"),
    ("own", "your own"),
    ("cuts", "leases it would interrupt"),
    ("reliability_ppm", "leases not broken off", percent),
    ("cost", "expected cost", money),
    ("hold", "hold", money),
    ("explanation.reason.text", "not matched because"),
)

Query = Annotated[
    str,
    typer.Argument(help="what the GPUs must be: 'gpu=H100,A100 memory>=40GiB region=eu nvlink'"),
]
Gpus = Annotated[int, typer.Option("--gpus", parser=whole(1), help="how many together")]
For = Annotated[str, typer.Option("--for", help="how long: 30m, 6h, 1d12h")]
GpusMin = Annotated[
    int | None, typer.Option("--gpus-min", parser=whole(1), help="make do with so many")
]
ForMin = Annotated[str | None, typer.Option("--for-min", help="make do with so long: 1h")]
Till = Annotated[
    str,
    typer.Option(
        "--good-till", help="deadline, immediate-or-cancel, fill-or-kill, or a time: +2h, 22:00"
    ),
]
Extend = Annotated[
    str | None,
    typer.Option("--extend-until", help="extend automatically until: +12h, 06:00, RFC 3339"),
]
Budget = Annotated[str | None, typer.Option("--budget", help="most the whole lease may cost")]
Repeat = Annotated[
    str | None,
    typer.Option("--repeat-until", help="ask for the same again after each lease: +7d, RFC 3339"),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="ask for the rest where a lease is cut short")
]
Pausable = Annotated[
    bool, typer.Option("--pausable", help="may be paused after its firm time, and goes on")
]
Saves = Annotated[
    str | None,
    typer.Option("--saves-every", help="the most work that a restart loses: 10m"),
]
Image = Annotated[
    str, typer.Option("--image", help="container image it runs in, by its digest: NAME@sha256:…")
]
Inputs = Annotated[
    UUID | None,
    typer.Option("--inputs", help="the folder that the work finds, from `files up`"),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--keep", help="what of its folder is kept: out/, '*.pt'; may be repeated"),
]
Secret = Annotated[
    list[str] | None,
    typer.Option("--secret", help="it is handed this one as /run/secrets/NAME; may be repeated"),
]
SecretEnv = Annotated[
    list[str] | None, typer.Option("--secret-env", help="so, and as a variable; may be repeated")
]
Max = Annotated[str, typer.Option("--max", help="most you pay per GPU-hour, such as 2.15")]
Start = Annotated[str | None, typer.Option("--start", help="not before: now, +2h, 22:00, RFC 3339")]
By = Annotated[str | None, typer.Option("--by", help="deadline for the end: +8h, 06:00, RFC 3339")]
Service = Annotated[str, typer.Option("--class", help="on-demand, reserved or interruptible")]
Patient = Annotated[bool, typer.Option("--patient", help="clear in rounds instead of at once")]
Soonest = Annotated[
    bool, typer.Option("--soonest", help="start sooner rather than pay less, within --max")
]
Gang = Annotated[bool, typer.Option("--any-hosts", help="GPUs may be on several hosts")]
Burst = Annotated[bool, typer.Option("--burst", help="may be rented in a cloud")]
Kind = Annotated[str, typer.Option("--kind", help="workload kind, such as training-7b or render")]
Unit = Annotated[str | None, typer.Option("--unit", help="business unit that pays, by id")]
Centre = Annotated[str, typer.Option("--cost-centre", help="instead of the unit's own")]
Project = Annotated[
    str, typer.Option("--project", help="a label that spending and budgets go by: llm-eval")
]
Command = Annotated[list[str] | None, typer.Argument(help="what runs: -- python train.py")]


def secrets_of(
    secrets: list[str] | None, secret_variables: list[str] | None
) -> dict[str, list[str]]:
    """Return what a workload says of its secrets; nothing where it names none."""
    named = dict.fromkeys([*(secrets or ()), *(secret_variables or ())])
    if not named:
        return {}
    return {"secrets": list(named), "secret_variables": list(dict.fromkeys(secret_variables or ()))}


def _asked(
    query: str, gpus: int, length: str, limit: str, start: str | None, by: str | None,
    service: str, patient: bool, gang: bool, burst: bool, kind: str, unit: str | None,
    centre: str, command: list[str] | None, gpus_min: int | None, length_min: str | None,
    till: str, extend: str | None, budget: str | None, repeat: str | None, resume: bool,
    soonest: bool, saves: str | None = None, image: str = "", inputs: UUID | None = None,
    outputs: list[str] | None = None, secrets: list[str] | None = None,
    secret_variables: list[str] | None = None, volumes: list[str] | None = None,
    end_when_idle: str | None = None, fetch: str = "", fetch_secret: str = "",
    pausable: bool = False, project: str = "",
) -> dict[str, Any]:  # fmt: skip
    now = datetime.now().astimezone()
    asked: dict[str, Any] = {
        "query": query,
        "gpus": gpus,
        "duration_seconds": length_of(length),
        "limit": limit,
        "service_class": service,
        "patience": "patient" if patient else "immediate",
        "placement": "any-hosts" if gang else "same-host",
        "seeks": "soonest" if soonest else "cheapest",
        "burst_allowed": burst,
        "resume": resume,
        "pausable": pausable,
        "workload": {"kind": kind, "command": command or []},
        "cost_centre": centre,
    }
    if saves is not None:
        asked["workload"]["checkpoint_seconds"] = length_of(saves)
    if (idle := idle_seconds(end_when_idle)) is not None:
        asked["workload"]["end_when_idle_seconds"] = idle
    texts = {"image": image, "fetch": fetch, "fetch_secret": fetch_secret, "project": project}
    asked["workload"] |= {name: said for name, said in texts.items() if said}
    if inputs is not None:
        asked["workload"]["inputs"] = str(inputs)
    if outputs:
        asked["workload"]["outputs"] = outputs
    if volumes:
        asked["workload"]["volumes"] = mounts_of(volumes)
    asked["workload"] |= secrets_of(secrets, secret_variables)
    if start is not None:
        asked["earliest_start"] = moment_of(start, now=now).isoformat()
    if by is not None:
        asked["deadline"] = moment_of(by, now=now).isoformat()
    if till in WAITS:
        asked["good_till"] = till
    else:
        asked["good_till"] = moment_of(till, now=now).isoformat()
    if length_min is not None:
        asked["duration_min_seconds"] = length_of(length_min)
    if extend is not None:
        asked["auto_extend_until"] = moment_of(extend, now=now).isoformat()
    if repeat is not None:
        asked["repeat_until"] = moment_of(repeat, now=now).isoformat()
    given = {"gpus_min": gpus_min, "budget": budget, "subscriber_id": unit}
    return asked | {name: value for name, value in given.items() if value is not None}


@app.command()
def preview(
    context: typer.Context, query: Query, length: For, limit: Max, command: Command = None,
    gpus: Gpus = 1, start: Start = None, by: By = None, service: Service = "on-demand",
    patient: Patient = False, gang: Gang = False, burst: Burst = False, kind: Kind = "other",
    unit: Unit = None, centre: Centre = "", gpus_min: GpusMin = None, length_min: ForMin = None,
    till: Till = "deadline", extend: Extend = None, budget: Budget = None,
    repeat: Repeat = None, resume: Resume = False, soonest: Soonest = False, image: Image = "",
    starts_within: StartsWithin = None, availability: Availability = None,
) -> None:  # fmt: skip
    """Say what a bid would get right now. Nothing is placed."""
    session = session_of(context)
    query = with_conditions(query, starts_within, availability)
    asked = _asked(query, gpus, length, limit, start, by, service, patient, gang, burst, kind,
                   unit, centre, command, gpus_min, length_min, till, extend, budget,
                   repeat, resume, soonest, image=image)  # fmt: skip
    quote = session.client.ask("bids/preview", asked)
    session.printer.facts(quote, QUOTE)
    if not session.printer.as_json:
        say_promises(session, quote)


@app.command()
def create(
    context: typer.Context, query: Query, length: For, limit: Max, command: Command = None,
    gpus: Gpus = 1, start: Start = None, by: By = None, service: Service = "on-demand",
    patient: Patient = False, gang: Gang = False, burst: Burst = False, kind: Kind = "other",
    unit: Unit = None, centre: Centre = "", gpus_min: GpusMin = None, length_min: ForMin = None,
    till: Till = "deadline", extend: Extend = None, budget: Budget = None,
    repeat: Repeat = None, resume: Resume = False, soonest: Soonest = False, saves: Saves = None,
    image: Image = "", inputs: Inputs = None, outputs: Outputs = None,
    secret: Secret = None, secret_env: SecretEnv = None, volume: Mounted = None,
    end_when_idle: Idle = None, fetch: Fetch = "", fetch_secret: FetchSecret = "",
    pausable: Pausable = False, project: Project = "",
    starts_within: StartsWithin = None, availability: Availability = None,
    wait: Annotated[bool, typer.Option("--wait", help="until the lease is active")] = False,
    timeout: Annotated[str, typer.Option(help="longest to wait: 10m, 2h")] = "10m",
) -> None:  # fmt: skip
    """Place a bid; the most it can cost is set aside."""
    session = session_of(context)
    query = with_conditions(query, starts_within, availability)
    asked = _asked(query, gpus, length, limit, start, by, service, patient, gang, burst, kind,
                   unit, centre, command, gpus_min, length_min, till, extend, budget,
                   repeat, resume, soonest, saves, image, inputs, outputs,
                   secret, secret_env, volume, end_when_idle, fetch, fetch_secret,
                   pausable, project)  # fmt: skip
    seconds = length_of(timeout)
    placed = session.client.post("bids", asked)
    # First of all, so that whatever comes next, nobody bids a second time.
    if wait or not session.printer.as_json:
        following = f"offpeak bids explain {placed['id']}"
        session.announce(f"Placed bid {placed['id']}.", placed["id"], following)
    bid = session.client.get(f"bids/{placed['id']}", after=placed["position"])
    if not wait:
        session.printer.facts(bid, ONE)
        return
    if not session.printer.as_json:
        session.printer.facts(bid, ONE)
    session.client.log.is_told = True
    try:
        lease = wait_for_lease(session, bid["id"], seconds=seconds)
    except BaseException:
        if session.printer.as_json:
            with suppress(NotPrinted):
                session.printer.json(bid)
        raise
    session.printer.facts(lease, (*LEASE, ("close_reason.text", "how it ended")))


@app.command("list")
def list_bids(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="open, filled, cancelled or expired")] = None,
    limit: Annotated[int, typer.Option(parser=whole(1), help="how many at most")] = 50,
) -> None:
    """List bids, newest first."""
    session = session_of(context)
    session.printer.table(
        session.client.all("bids", limit=limit, state=state),
        COLUMNS,
        empty="No bids. Try: offpeak bids preview 'gpu=H100' --for 1h --max 3.00",
    )


@app.command()
def show(context: typer.Context, bid: UUID) -> None:
    """Show one bid."""
    session = session_of(context)
    session.printer.facts(session.client.get(f"bids/{bid}"), ONE)


@app.command()
def explain(context: typer.Context, bid: UUID) -> None:
    """Say which constraint leaves how many GPUs, and what price would do."""
    session = session_of(context)
    answer = session.client.get(f"bids/{bid}/explain")
    if session.printer.as_json:
        session.printer.json(answer)
        return
    session.printer.table(
        _narrowing(answer["funnel"]),
        (("constraint", "after"), ("asked", "asked"), ("gpus", "GPUs left"), ("fewer", "fewer")),
        empty="",
    )
    session.printer.facts(
        answer,
        (
            ("state", "state"),
            ("can_be_placed", "can be placed now"),
            ("price_needed", "price needed per GPU-hour", money),
            ("reason.text", "why it waits"),
            ("told", "in figures"),
            ("as_of", "as of"),
        ),
    )
    _say_burst(session, bid)
    if (later := answer.get("undisturbed")) is not None:
        session.printer.say(
            f"Leases that would go for it ({later['leases']}, on {later['gpus']} GPUs) have not "
            f"run for their least time yet: until {later['until']}. "
            f"The bid would have to start by {later['starts_by']}."
        )


def _say_burst(session: Session, bid: UUID) -> None:
    """Say what keeps a bid that may burst from being served by a cloud, if anything does."""
    burst = session.client.get(f"burst/bids/{bid}")
    if (waiting := burst.get("waiting")) is not None:
        session.printer.say(f"Bursting: {waiting['message']} Tried again at {waiting['next_at']}.")
    for tried in burst.get("attempts", []):
        why = ": ".join(each for each in (tried["reason"], tried["detail"]) if each)
        session.printer.say(
            f"Attempt {tried['attempt']} ({tried['instance_type']} at {tried['cloud']}): "
            f"{tried['state']}{', ' if why else ''}{why}"
        )


def _narrowing(funnel: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps that leave fewer GPUs, between all there are and what is left."""
    inner = [step for step in funnel[1:-1] if step["fewer"]]
    return [*funnel[:1], *inner, *funnel[1:][-1:]]


@app.command()
def amend(
    context: typer.Context,
    bid: UUID,
    limit: Annotated[str | None, typer.Option("--max", help="new most per GPU-hour")] = None,
    by: By = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", parser=whole(1), help="new number of GPUs")
    ] = None,
) -> None:
    """Amend limit, deadline or number of GPUs; the bid queues behind others at its price."""
    session = session_of(context)
    change: dict[str, object] = {}
    if gpus is not None:
        change["gpus"] = gpus
    if limit is not None:
        change["limit"] = limit
    if by is not None:
        change["deadline"] = moment_of(by, now=datetime.now().astimezone()).isoformat()
    done = session.client.patch(f"bids/{bid}", change)
    session.printer.facts(session.client.get(f"bids/{bid}", after=done["position"]), ONE)


@app.command()
def chain(context: typer.Context, bid: UUID) -> None:
    """List the bids that follow one another, of which this is one."""
    session = session_of(context)
    session.printer.table(session.client.all(f"bids/{bid}/chain", limit=1_000), CHAIN, empty="")


@app.command()
def route(context: typer.Context, bid: UUID) -> None:
    """Say what each market would have done with a bid, where it went, and how it moved since."""
    session = session_of(context)
    answer = session.client.get(f"bids/{bid}/route")
    if session.printer.as_json:
        session.printer.json(answer)
        return
    nothing = "There was no choice: it named its market, or only one could serve it."
    session.printer.table(answer["considered"], CONSIDERED, empty=nothing)
    session.printer.facts(answer, ROUTE)
    if answer["moves"]:
        session.printer.table(answer["moves"], MOVES, empty="")


@app.command()
def end(context: typer.Context, bid: UUID) -> None:
    """End a chain of bids: a waiting bid is withdrawn, a running lease continues."""
    session = session_of(context)
    done = session.client.delete(f"bids/{bid}/chain")
    session.printer.facts(session.client.get(f"bids/{bid}", after=done["position"]), ONE)


@app.command()
def cancel(context: typer.Context, bid: UUID) -> None:
    """Withdraw a bid that is not filled yet; what was set aside is free again."""
    session = session_of(context)
    done = session.client.delete(f"bids/{bid}")
    session.printer.facts(session.client.get(f"bids/{bid}", after=done["position"]), ONE)
