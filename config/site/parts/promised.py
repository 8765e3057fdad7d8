"""What owners promise of their service, as it is read from rows."""

from __future__ import annotations

from typing import Any

from listings.domain.sla import sentences
from listings.queries import sla_of


def promised_of(said: dict[str, Any] | None) -> list[str]:
    """Return what is promised, a sentence each; none: nothing is."""
    terms = sla_of(said)
    return [] if terms is None else sentences(terms)
