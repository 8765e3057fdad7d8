"""`offpeak secrets`: what work needs to know and nobody else may, such as a token of a registry."""

from __future__ import annotations

import re
import sys
from getpass import getpass
from typing import Annotated

import typer

from .session import Yes, confirm, session_of
from .spoken import NotUnderstood

app = typer.Typer(
    help="Secrets that work is handed. Values are set and never shown.", no_args_is_help=True
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
VALUE_BYTES_MAX = 32_768
SEEN_IN_LOGS_BELOW = 8
"""Bytes; a shorter value is not looked for in what work prints: it would be found everywhere."""

COLUMNS = (
    ("name", "secret"),
    ("version", "version"),
    ("set_at", "set"),
    ("used_by", "used by bids"),
    ("delivered_at", "last handed out"),
    ("delivered_lease_id", "to the work of lease"),
)
Name = Annotated[str, typer.Argument(help="a name as of a variable, such as HF_TOKEN")]


@app.command("set")
def set_value(
    context: typer.Context,
    name: Name,
    exact: Annotated[
        bool, typer.Option("--exact", help="with the line end that closes what is read")
    ] = False,
) -> None:
    """Set a secret. Its value is asked for, or read from standard input: never an argument."""
    session = session_of(context)
    address = _address(name)
    value = _asked(name) if sys.stdin.isatty() else _read(exact=exact)
    if not value:
        raise NotUnderstood(f"The value of {name} is empty: nothing was set.")
    size = len(value.encode())
    if size > VALUE_BYTES_MAX:
        raise NotUnderstood(f"A value has at most {VALUE_BYTES_MAX} bytes, and this has {size}.")
    done = session.client.put(address, {"value": value})
    if size < SEEN_IN_LOGS_BELOW:
        session.printer.say("It is too short to be hidden where work prints it.")
    session.printer.done(done, f"Set {name}, version {done['version']}: {size} bytes.")


@app.command("list")
def list_secrets(context: typer.Context) -> None:
    """List secrets by name, without their values."""
    session = session_of(context)
    session.printer.table(session.client.all("secrets"), COLUMNS, empty="No secrets.")


@app.command("rm")
def remove(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Remove a secret; waiting work that asks for it will fail for want of it."""
    session = session_of(context)
    address = _address(name)
    confirm(session, f"Remove {name}? Its value is gone then.", yes=yes)
    session.printer.done(session.client.delete(address), f"Removed {name}.")


def _address(name: str) -> str:
    if not NAME.fullmatch(name):
        raise NotUnderstood(
            "A secret's name is up to 64 letters, digits and _, and begins with no digit."
        )
    return f"secrets/{name}"


def _asked(name: str) -> str:
    """Ask a person at a terminal, who does not see what they type."""
    try:
        return getpass(f"Value of {name}: ", stream=sys.stderr)
    except EOFError:
        return ""


def _read(*, exact: bool) -> str:
    """Read standard input, without the line end that `echo` and files have at their end."""
    read = sys.stdin.buffer.read(VALUE_BYTES_MAX + 3)
    if len(read) > VALUE_BYTES_MAX + 2:
        raise NotUnderstood(f"A value has at most {VALUE_BYTES_MAX} bytes.")
    try:
        value = read.decode()
    except UnicodeDecodeError:
        raise NotUnderstood("A value is text in UTF-8: write bytes as base64.") from None
    if "\0" in value:
        raise NotUnderstood("A value has no null character: write bytes as base64.")
    return value if exact else value.removesuffix("\n").removesuffix("\r")
