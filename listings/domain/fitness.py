"""How often a GPU fails again after its return, and what of it is news."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from listings.domain.events import GpuNote, GpuNoted

RELAPSE_WITHIN = timedelta(hours=6)
"""A GPU that has a fault so soon after its return has the same trouble still: it waits longer."""
RELAPSES_MAX = 10
PASSES_EVERY = timedelta(hours=20)
"""Diagnostics that pass are put on record so often, and each that passes after one that failed."""
FAILURES_EVERY = timedelta(minutes=45)
"""The same failure of the same GPU is put on record again: it is probed once an hour in the end."""
NOTES_EVERY = timedelta(minutes=10)
"""Other notes of a GPU: clocks that go up and down by the minute make no history."""


@dataclass(frozen=True, slots=True)
class Returned:
    """When a GPU was released last, and how many relapses it had by then."""

    at: datetime
    relapses: int


def relapses(last: Returned | None, *, now: datetime) -> int:
    """Return how often in a row a GPU that has a fault now had it soon after its return."""
    if last is None or now - last.at > RELAPSE_WITHIN:
        return 0
    return min(last.relapses + 1, RELAPSES_MAX)


def kind_of(note: GpuNote) -> str:
    """Return what a note is about: of one kind the last holds."""
    return "diagnostic" if note.startswith("diagnostic") else "clocks"


def is_news(note: GpuNote, detail: str, last: GpuNoted | None, *, now: datetime) -> bool:
    """Tell if a note says something that the last of its kind did not."""
    if last is None:
        return note != "steady"
    if note == "diagnostic-passed" and last.note == note:
        return now - last.at >= PASSES_EVERY
    if note == "steady":
        return last.note == "slowed"
    if note == "slowed":
        return last.note == "steady" and now - last.at >= NOTES_EVERY
    return (note, detail) != (last.note, last.detail) or now - last.at >= FAILURES_EVERY
