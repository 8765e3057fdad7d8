"""How a run of the command line ends: in a sentence, and in an exit code that scripts can trust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .client import Done, Log
from .printing import NotPrinted, Printer
from .problems import NotSendable, Problem, Unreachable
from .spoken import NotUnderstood

FAILED, USAGE, NOT_FOUND, REFUSED, NOT_ALLOWED, TIMED_OUT, NO_ANSWER, NOT_SHOWN = range(1, 9)
INTERRUPTED = 130
NOT_RUN = 125
"""Of `offpeak run`: the work has no exit code, because it never ran or was ended from outside."""
"""Exit codes; a contract with scripts. config/docs/cli.md has the table."""

Known = (
    Problem, Unreachable, NotSendable, NotUnderstood, NotPrinted, TimeoutError, KeyboardInterrupt,
    OSError,
)  # fmt: skip
"""What may end a command; all else is a fault of this program."""


def exit_code_of(problem: Problem) -> int:
    """Return the exit code of a refusal."""
    match problem.status:
        case 401 | 403:
            return NOT_ALLOWED
        case 404:
            return NOT_FOUND
        case 429:
            return NO_ANSWER
        case status if status >= 500:
            return NO_ANSWER
        case _:
            return REFUSED


def end(printer: Printer, error: BaseException, log: Log, *, is_waiting: bool) -> int:
    """Say what went wrong, and what was done all the same; return the exit code.

    is_waiting: what was done has been told already, and the rest of the command only looks on.
    """
    code, sentence = _said(error)
    unsure = log.under_way
    if log.done and not (is_waiting or log.is_refused or unsure):
        code = code if isinstance(error, KeyboardInterrupt) else NOT_SHOWN
    done = "" if is_waiting else _in_words(log.done)
    doubt = f"Whether {unsure} was done is not known: look before you repeat it." if unsure else ""
    if printer.as_json:
        body = error.body if isinstance(error, Problem) else {"code": _code_of(error)}
        told: dict[str, Any] = {"detail": sentence, **body, "exit_code": code}
        if log.done:
            told["done"] = [
                {"method": each.method, "path": each.path, "id": each.id} for each in log.done
            ]
        if unsure:
            told["not_known"] = unsure
        printer.tell_json(told)
    else:
        printer.tell(" ".join(part for part in (sentence, done, doubt) if part))
    return code


def _said(error: BaseException) -> tuple[int, str]:
    """Return exit code and sentence of what ended a command."""
    match error:
        case Problem():
            return exit_code_of(error), error.sentence
        case Unreachable():
            return NO_ANSWER, f"The market does not answer: {error}"
        case NotSendable() | NotUnderstood():
            return USAGE, str(error)
        case NotPrinted():
            return NOT_SHOWN, f"The answer could not be printed: {error}."
        case TimeoutError():
            return TIMED_OUT, "Still not so when the time was up."
        case KeyboardInterrupt():
            return INTERRUPTED, "Interrupted."
        case OSError():
            return NOT_SHOWN, f"The answer could not be written: {error}."
        case _:
            return FAILED, f"This program failed: {error!r}"


def _code_of(error: BaseException) -> str:
    match error:
        case Unreachable():
            return "no-answer"
        case NotSendable() | NotUnderstood():
            return "not-understood"
        case TimeoutError():
            return "timed-out"
        case KeyboardInterrupt():
            return "interrupted"
        case NotPrinted() | OSError():
            return "not-printed"
        case _:
            return "failed"


def _in_words(done: Sequence[Done]) -> str:
    """Say what was done, so that nobody does it twice."""
    if not done:
        return ""
    each = ", ".join(f"{one.method} {one.path}{f' ({one.id})' if one.id else ''}" for one in done)
    return f"It was done all the same, so do not repeat it: {each}."
