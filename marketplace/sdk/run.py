"""`offpeak run`: bring a folder, lease GPUs, follow the work and take home what it made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from . import files, logs
from .bids import (
    Centre,
    For,
    Gpus,
    Image,
    Kind,
    Max,
    Outputs,
    Pausable,
    Project,
    Resume,
    Saves,
    Secret,
    SecretEnv,
    Unit,
    secrets_of,
)
from .ending import NOT_RUN
from .fetching import FetchSecret, FetchThere, fetched_there, told
from .forms import money
from .idle import Idle, idle_seconds
from .promised import Availability, StartsWithin, with_conditions
from .session import Session, session_of
from .spoken import NotUnderstood, length_of
from .volumes import Mounted, mounts_of
from .waiting import next_of_chain, told_if_left, wait_for_lease

END_SECONDS_MAX = 120.0
"""How long the market is waited for to know how work ended whose log is complete."""
KEPT_SECONDS_MAX = 900.0
"""How long a host is waited for to send what the work made."""
SIGNALLED = 128
"""Added to a signal's number, as shells tell of a command that one ended."""
COMMAND = "offpeak.command"


Folder = Annotated[
    str | None,
    typer.Argument(
        help="the folder in which the command runs: of this machine, "
        "git+https://host/owner/repo@ref#folder or s3://bucket/prefix"
    ),
]
Needs = Annotated[
    str, typer.Option("--needs", help="what the GPUs must be: 'gpu=H100 memory>=40GiB'")
]
Network = Annotated[
    Literal["open", "none"] | None,
    typer.Option("--network", help="only where work reaches public addresses, or nothing at all"),
]
Variables = Annotated[
    list[str] | None, typer.Option("--env", help="NAME=VALUE for the work; may be repeated")
]
To = Annotated[
    Path | None, typer.Option("--to", help="where to take what --keep names: a new folder")
]
Cheapest = Annotated[bool, typer.Option("--cheapest", help="start later where that costs less")]
Timeout = Annotated[str, typer.Option(help="longest to wait for GPUs: 10m, 2h")]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="end once the bid is placed; the work goes on")
]


class WithCommand(TyperCommand):
    """A command after whose `--` the words of another one stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set the words after `--` apart: they are none of our options, nor a folder."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line, the other command's among them."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND…"]


def run(
    context: typer.Context, length: For, limit: Max, folder: Folder = None, needs: Needs = "",
    gpus: Gpus = 1, image: Image = "", env: Variables = None, outputs: Outputs = None,
    to: To = None, kind: Kind = "other", unit: Unit = None, cheapest: Cheapest = False,
    centre: Centre = "", timeout: Timeout = "1d", detach: Detach = False, volume: Mounted = None,
    network: Network = None, end_when_idle: Idle = None, fetch_there: FetchThere = False,
    fetch_secret: FetchSecret = "", secret: Secret = None, secret_env: SecretEnv = None,
    resume: Resume = False, saves: Saves = None, pausable: Pausable = False,
    project: Project = "", starts_within: StartsWithin = None, availability: Availability = None,
) -> None:  # fmt: skip
    """Run a command on leased GPUs: bring FOLDER, wait, show what it prints, end as it did.

    `offpeak run ./train --for 2h --max 2.00 --keep 'out/' --to ./out -- python3 train.py`
    """
    session = session_of(context)
    command = context.meta[COMMAND]
    if not command:
        raise NotUnderstood("Say what runs, after --: offpeak run ./train … -- python3 train.py")
    if to is not None and not outputs:
        raise NotUnderstood("--to takes home what --keep names: say --keep 'out/' too.")
    if to is not None:
        files.refuse_unless_empty(to)
    seconds = length_of(timeout)
    workload: dict[str, Any] = {"kind": kind, "command": command}
    workload["environment"] = _variables(env or ())
    named: dict[str, Any] = {"image": image, "outputs": outputs, "project": project}
    named |= {"volumes": mounts_of(volume), "end_when_idle_seconds": idle_seconds(end_when_idle)}
    named["checkpoint_seconds"] = None if saves is None else length_of(saves)
    workload |= {name: said for name, said in named.items() if said not in (None, "", [])}
    workload |= secrets_of(secret, secret_env)
    workload |= fetched_there(folder, there=fetch_there, secret=fetch_secret)
    asked = {
        "query": with_conditions(needs, starts_within, availability, network),
        "gpus": gpus,
        "duration_seconds": length_of(length),
        "limit": limit,
        "service_class": "on-demand",
        "seeks": "cheapest" if cheapest else "soonest",
        "cost_centre": centre,
        "resume": resume,
        "pausable": pausable,
        "workload": workload,
    }
    if unit is not None:
        asked["subscriber_id"] = unit
    if folder is not None and not fetch_there:
        workload["inputs"] = _sent(session, folder)
    placed = session.client.post("bids", asked)
    following = f"offpeak bids explain {placed['id']}"
    session.announce(f"Placed bid {placed['id']}.", placed["id"], following)
    if detach:
        return
    session.client.log.is_told = True
    leases = [_followed(session, placed["id"], seconds=seconds, has_outputs=bool(outputs))]
    while (resume or pausable) and (bid_id := next_of_chain(session, leases[-1])) is not None:
        session.printer.say(f"{_cut_short(leases[-1])} It goes on as bid {bid_id}.")
        leases.append(_followed(session, bid_id, seconds=seconds, has_outputs=bool(outputs)))
    if to is not None:
        files.take_outputs(session, leases[-1], to)
    raise typer.Exit(_tell(session, leases, to))


def _sent(session: Session, folder: str) -> str:
    """Send the folder; return its id.

    To say all of the command again after a refusal is right then: the folder is there, and sent
    no second time. So it does not count as done when the end of the command is told.
    """
    sent = files.send(session, folder)
    if not sent["sent_bytes"]:
        session.printer.say("Nothing had to be sent: all of it is there already.")
    session.client.log.done.clear()
    return str(sent["id"])


def _followed(
    session: Session, bid_id: str, *, seconds: float, has_outputs: bool
) -> dict[str, Any]:
    """Show what the work of a bid prints; return its lease once that is over.

    Raises: TimeoutError; BidEnded where the bid became no lease.
    """
    lease = wait_for_lease(session, bid_id, seconds=seconds)
    for each in (said for attempt in lease["attempts"] for said in told(attempt)):
        session.printer.say(each)
    stands = f"The work goes on, and costs: offpeak leases end {lease['id']} ends it."
    with told_if_left(session, stands, lease["id"], f"offpeak logs -f {lease['id']}"):
        if lease["state"] not in files.OVER or lease["attempts"] or lease.get("activated_at"):
            logs.show(session, lease["id"])
        return _ended(session, lease["id"], has_outputs=has_outputs)


def _cut_short(lease: Mapping[str, Any]) -> str:
    text = (lease.get("close_reason") or {}).get("text", "") or "The lease was cut short."
    lost = lease.get("lost_seconds")
    return f"{text} Lost: {lost} s of work." if lost else text


def _variables(said: Sequence[str]) -> Mapping[str, str]:
    """Return variables of the work as they were said: NAME=VALUE."""
    found: dict[str, str] = {}
    for each in said:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise NotUnderstood(f"--env {each!r} is no variable: write NAME=VALUE.")
        found[name] = value
    return found


def _ended(session: Session, lease_id: str, *, has_outputs: bool) -> dict[str, Any]:
    """Wait until the lease is over and what its work made is kept, or given up.

    Raises: TimeoutError.
    """
    path = f"leases/{lease_id}"
    lease: dict[str, Any] = session.client.wait(
        path, lambda lease: lease["state"] in files.OVER, seconds=END_SECONDS_MAX
    )
    if has_outputs and not _is_kept(lease) and lease["attempts"]:
        session.printer.say("The host sends what the work made.")
        lease = session.client.wait(path, _is_kept, seconds=KEPT_SECONDS_MAX)
    return lease


def _is_kept(lease: Mapping[str, Any]) -> bool:
    given_up = (each for each in lease["outputs_failed"] if not each.get("volume"))
    return bool(lease["output_folders"]) or any(each["final"] for each in given_up)


def _tell(session: Session, leases: Sequence[Mapping[str, Any]], to: Path | None) -> int:
    """Say how it ended and what all of it cost; return the exit code, of several hosts the first
    bad.

    leases: those that one after the other did the work.
    """
    lease = leases[-1]
    attempts = lease["attempts"]
    codes = [each["exit_code"] for each in attempts]
    code = next((each for each in codes if each != 0), 0) if codes else None
    reasons = [each["reason"] for each in attempts if each["reason"]]
    close = (lease.get("close_reason") or {}).get("text", "")
    if code is None and any(each.get("started_at") for each in attempts):
        # Who ended it: the host knows no more than that it was told to.
        reasons.insert(0, close)
    usages = [session.client.get(f"leases/{each['id']}/usage") for each in leases]
    result = {
        "lease_id": lease["id"],
        "exit_code": code,
        "reason": next(filter(None, reasons), close),
        "cost": f"{sum(Decimal(usage['cost']) for usage in usages):f}",
        "currency": usages[-1]["currency"],
        "leases": [each["id"] for each in leases],
        "outputs": [each["folder_id"] for each in lease["output_folders"]],
    }
    if session.printer.as_json:
        session.printer.print(json.dumps(result))
    else:
        cost, why = money(result["cost"], result), str(result["reason"]).removesuffix(".")
        how = f"exit code {code}" if code is not None else f"no exit code: {why}"
        session.printer.say(f"Ended with {how}. Cost so far: {cost}.")
        for folder in result["outputs"]:
            if to is None:
                session.printer.say(f"Kept: offpeak files down {folder} ./out")
            else:
                session.printer.say(
                    f"It is in {to}, and kept: offpeak files rm {folder} removes it."
                )
    if code is None:
        return NOT_RUN
    return code if code >= 0 else SIGNALLED - code
