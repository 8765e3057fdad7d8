"""What owners promise, as bids ask for it and previews tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .forms import money, percent
from .session import Session
from .spoken import length_of

RECLAIM = (
    ("gpus", "GPUs"),
    ("notice_seconds", "with notice, s"),
    ("grace_seconds", "grace, s"),
    ("fee_ppm", "compensation, of the unused rest", percent),
)
MISSED = (
    ("gpus", "GPUs"),
    ("text", "the work"),
    ("credit_ppm", "credited, of the charge", percent),
    ("credit", "comes to", money),
)
StartsWithin = Annotated[
    str | None,
    typer.Option("--starts-within", help="only where owners promise a start as soon as this: 60s"),
]
Availability = Annotated[
    str | None,
    typer.Option("--availability", help="only where owners promise this share of the time: 0.99"),
]


def with_conditions(
    query: str, starts_within: str | None, availability: str | None, network: str | None = None
) -> str:
    """Return a query with the conditions that options say.

    Raises: NotUnderstood.
    """
    words = [query, f"network={network}" if network else ""]
    if starts_within is not None:
        words.append(f"starts<={length_of(starts_within)}s")
    if availability is not None:
        words.append(f"availability>={availability}")
    return " ".join(filter(None, words))


def say_promises(session: Session, quote: Mapping[str, Any]) -> None:
    """Tell what the owners of a preview's GPUs promise."""
    promised = [
        {"gpus": each["gpus"], "grace_seconds": each["grace_seconds"], **step}
        for each in quote["reclaim"]
        for step in each["steps"]
    ]
    if promised:
        session.printer.say("If an owner takes it back:")
        session.printer.table(promised, RECLAIM, empty="")
    missed = [
        {"gpus": each["gpus"], "currency": quote["currency"], **miss}
        for each in quote.get("service", ())
        for miss in each["misses"]
    ]
    if missed:
        session.printer.say("If its owner misses what is promised:")
        session.printer.table(missed, MISSED, empty="")
