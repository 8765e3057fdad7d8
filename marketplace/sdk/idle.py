"""`--end-when-idle` and `offpeak leases idle`: leases that are given back when nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer

from .printing import shown
from .session import session_of
from .spoken import NotUnderstood, length_of

SECONDS_MIN, SECONDS_MAX = 300, 12 * 3600
MEBIBYTE = 1_048_576
FIGURES = (
    ("busy_percent", "GPU busy", 1, 0, " %"),
    ("cpu_millicores", "CPU", 1000, 1, " cores"),
    ("disk_bytes", "disk", MEBIBYTE, 1, " MiB/s"),
    ("network_bytes", "network", MEBIBYTE, 1, " MiB/s"),
)

Idle = Annotated[
    str | None,
    typer.Option("--end-when-idle", help="give its leases back after so long idle: 30m"),
]


def idle_seconds(said: str | None) -> int | None:
    """Read `--end-when-idle`.

    Raises: NotUnderstood.
    """
    if said is None:
        return None
    seconds = length_of(said)
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise NotUnderstood(f"--end-when-idle {said}: between 5m and 12h")
    return seconds


def idle(
    context: typer.Context,
    lease: UUID,
    keep: Annotated[bool, typer.Option("--keep", help="count its idle time anew")] = False,
) -> None:
    """Say how idle a lease is, on what figures, and when that ends it."""
    session = session_of(context)
    after = None
    if keep:
        after = session.client.post(f"leases/{lease}/idle/keep")["position"]
    found = session.client.get(f"leases/{lease}/idle", after=after)
    if session.printer.as_json:
        session.printer.json(found)
        return
    session.printer.say(sentence(found))


def sentence(found: Mapping[str, Any]) -> str:
    """Say it: GPU busy 1 % (< 5 %), … for 12 of 30 minutes."""
    if found["rule"] is None:
        return "No rule ends it when idle, or it does not run."
    rule, now, parts = found["rule"], found["now"], []
    for name, title, scale, digits, unit in FIGURES:
        most = f"{rule[name] / scale:.{digits}f}{unit}"
        if now is None or now[name] is None:
            parts.append(f"{title} not measured")
        else:
            sign = "<" if now[name] < rule[name] else "not <"
            parts.append(f"{title} {now[name] / scale:.{digits}f}{unit} ({sign} {most})")
    minutes = f"{found['idle_seconds'] // 60} of {rule['after_seconds'] // 60} minutes"
    end = ""
    if found["release_at"] is not None:
        end = f"; it ends {shown(found['release_at'])} unless it does something, or you --keep it"
    return f"{', '.join(parts)}: idle for {minutes}{end}."
