"""What every command of a run shares: which market, as whom, and how answers are printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from .client import Client
from .printing import Printer


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the command line."""

    client: Client
    printer: Printer
    server: str

    def announce(self, sentence: str, made: str, command: str) -> None:
        """Tell, before anything else, what was made and which command shows it."""
        if self.printer.as_json:
            self.printer.tell_json({"id": made, "next": command})
        else:
            self.printer.tell(f"{sentence} Next: {command}")


Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask whether it is meant")]


def session_of(context: typer.Context) -> Session:
    """Return the run's session, made by the main callback."""
    session = context.find_object(Session)
    assert session is not None
    return session


def confirm(session: Session, question: str, *, yes: bool) -> None:
    """Ask a person at a terminal whether it is meant; a program means what it says.

    Raises: typer.Exit where the answer is no.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    session.printer.tell(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        session.printer.tell("Nothing was done.")
        raise typer.Exit(1)
