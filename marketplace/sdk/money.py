"""`offpeak statement` and `offpeak export`: what was spent and earned, and files for finance."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from .forms import money
from .session import session_of

ACCOUNTS = (
    ("title", "account"),
    ("kind", "kind"),
    ("available", "available", money),
    ("held", "held", money),
    ("total", "total", money),
    ("account_id", "id"),
)
LINES = (
    ("at", "when"),
    ("kind", "what"),
    ("amount", "amount", money),
    ("balance", "balance", money),
)
Period = Annotated[str | None, typer.Option(help="a month such as 2026-11; this one otherwise")]


def statement(
    context: typer.Context,
    account: Annotated[UUID | None, typer.Argument(help="its id; all of them otherwise")] = None,
    period: Period = None,
) -> None:  # fmt: skip
    """List accounts with their balances, or the lines of one."""
    session = session_of(context)
    if account is None:
        session.printer.table(session.client.all("accounts"), ACCOUNTS, empty="No accounts.")
        return
    month = period or datetime.now().astimezone().strftime("%Y-%m")
    lines = session.client.all(f"accounts/{account}/statement", period=month)
    session.printer.table(lines, LINES, empty=f"Nothing was posted in {month}.")


def export(
    context: typer.Context,
    form: Annotated[
        str,
        typer.Argument(
            help="focus, xlsx, gl, gl-sap, gl-netsuite, gl-iif, beancount, hledger …: a wrong one"
            " lists all"
        ),
    ],
    period: Period = None,
    to: Annotated[Path | None, typer.Option(help="file; standard output otherwise")] = None,
    focus: Annotated[str, typer.Option(help="version of FOCUS: 1.2 or 1.3")] = "1.2",
    parquet: Annotated[bool, typer.Option("--parquet", help="FOCUS as Parquet")] = False,
    at_position: Annotated[
        int | None, typer.Option(help="leave out what was recorded after that event")
    ] = None,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="write the manifest beside it, and compare with it")
    ] = False,
    since: Annotated[
        int | None, typer.Option(help="position of an earlier one: the manifest says what differs")
    ] = None,
) -> None:  # fmt: skip
    """Download a month for finance."""
    session = session_of(context)
    month = period or datetime.now().astimezone().strftime("%Y-%m")
    name = _form(form, version=focus, parquet=parquet)
    manifest = manifest or since is not None
    if manifest and to is None:
        raise typer.BadParameter(
            "it goes beside the file: give `--to` as well", param_hint="--manifest"
        )
    asked: dict[str, Any] = {"format": name, "period": month}
    if at_position is not None:
        asked["position"] = at_position
    told: dict[str, Any] | None = None
    if manifest:
        earlier = {} if since is None else {"since": since}
        told = session.client.get("exports/manifest", **asked, **earlier)
        asked["position"] = told["position"]
    parts = session.client.download("exports", **asked)
    if to is None:
        for part in parts:
            session.printer.write(part)
        return
    draft, digest = to.with_name(f".{to.name}.part"), hashlib.sha256()
    with draft.open("wb") as file, progress(told["bytes"] if told else None) as moved:
        for part in parts:
            file.write(part)
            digest.update(part)
            moved(len(part))
    if told is not None:
        if digest.hexdigest() != told["sha256"]:
            draft.unlink()
            session.printer.tell("What came is not what the manifest says. Nothing was written.")
            raise typer.Exit(1)
        beside = to.with_name(f"{to.name}.manifest.json")
        beside.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    draft.rename(to)
    session.printer.say(f"Wrote {to}.")


def _form(form: str, *, version: str, parquet: bool) -> str:
    """Return the format's name; the options are those of FOCUS."""
    if form != "focus":
        if version != "1.2" or parquet:
            raise typer.BadParameter("`--focus` and `--parquet` are for `focus`", param_hint="form")
        return form
    named = form if version == "1.2" else f"{form}-{version}"
    return f"{named}-parquet" if parquet else named


@contextmanager
def progress(size: int | None) -> Iterator[Callable[[int], None]]:
    """Show how much of a file has come, where a person looks on; size: in bytes, if it is known."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    # A sixth of a second that only a download at a terminal costs.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    bar = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*bar, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=size)
        yield lambda count: shown.advance(task, count)
