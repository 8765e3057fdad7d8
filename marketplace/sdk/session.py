"""What every command of a run shares: which market, as whom, and how answers are printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

import typer

from .client import Client
from .printing import Printer
from .problems import Problem, Unreachable
from .spoken import NotUnderstood

DONE, USAGE, NOT_FOUND, REFUSED, NOT_ALLOWED, TIMED_OUT, NO_ANSWER = 0, 2, 3, 4, 5, 6, 7
"""Exit codes; a contract with scripts."""


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


def session_of(context: typer.Context) -> Session:
    """Return the run's session, made by the main callback."""
    session = context.find_object(Session)
    assert session is not None
    return session


def exit_code_of(problem: Problem) -> int:
    """Return the exit code of a refusal."""
    match problem.status:
        case 401 | 403:
            return NOT_ALLOWED
        case 404:
            return NOT_FOUND
        case _:
            return REFUSED


def fail(printer: Printer, error: Exception) -> NoReturn:
    """Say what went wrong, in one sentence or as the problem itself, and end."""
    match error:
        case Problem():
            if printer.as_json:
                Printer(as_json=True).err.print_json(data=error.body)
            else:
                printer.err.print(error.sentence, markup=False)
            sys.exit(exit_code_of(error))
        case Unreachable():
            printer.err.print(f"The market does not answer: {error}", markup=False)
            sys.exit(NO_ANSWER)
        case NotUnderstood():
            printer.err.print(str(error), markup=False)
            sys.exit(USAGE)
        case TimeoutError():
            printer.err.print("Still not so when the time was up.", markup=False)
            sys.exit(TIMED_OUT)
        case _:
            raise error
