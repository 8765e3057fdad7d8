"""What owners promise of their service, as it is read from rows."""

from __future__ import annotations

from typing import Any

from listings.domain.sla import sentences
from listings.domain.sla_events import SlaStep, SlaTerms


def sla_of(said: dict[str, Any] | None) -> SlaTerms | None:
    """Return the terms of a row."""
    if said is None:
        return None
    steps = tuple(SlaStep(**step) for step in said["steps"])
    return SlaTerms(said["start_by_seconds"], said["late_credit_ppm"], steps)


def promised_of(said: dict[str, Any] | None) -> list[str]:
    """Return what is promised, a sentence each; none: nothing is."""
    terms = sla_of(said)
    return [] if terms is None else sentences(terms)
