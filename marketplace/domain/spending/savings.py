"""What pooling saved: what the same GPU-hours would have cost in a cloud, or on GPUs of one's own.

    saved against a cloud   = GPU-hours × list price − paid
    saved against dedicated = GPU-hours × (purchase ÷ (years × 8,766 h × utilisation) + running)
                              − paid

8,766 hours are a year with its part of a leap day. Below zero: it cost more. Nothing is assumed: of
a model for which the platform said no figure, nothing is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_MAX
from ledger.domain.refusal import Invalid
from marketplace.domain.spending.events import ComparisonSet

HOURS_OF_YEAR = 8_766
PPM = 1_000_000
YEARS_MAX = 20
TEXT_CHARS_MAX = 200
MODELS_MAX = 500


class ComparisonUnclear(Invalid):
    """A comparison needs a model, 1 to 20 years, a utilisation of 1 to 100 % and a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """What GPUs cost elsewhere, by model and currency."""

    STREAM: ClassVar[str] = "comparison"

    set: Mapping[tuple[str, str], ComparisonSet] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: Comparisons | None, event: ComparisonSet, /) -> Comparisons:
        """Return the comparisons after `event`."""
        known = {} if state is None else state.set
        return cls(set={**known, (event.gpu_model, event.currency): event})


def compare(now: Comparisons, terms: ComparisonSet) -> list[ComparisonSet]:
    """Decide whether these figures may be compared with; the same again changes nothing.

    Raises: ComparisonUnclear.
    """
    prices = [each.nanos_per_gpu_hour for each in (terms.cloud, terms.running) if each is not None]
    prices += [] if terms.purchase is None else [terms.purchase.nanos]
    known = now.set.get((terms.gpu_model, terms.currency))
    fits = (
        0 < len(terms.gpu_model) <= TEXT_CHARS_MAX
        and len(terms.source) <= TEXT_CHARS_MAX
        and (terms.cloud is not None or terms.purchase is not None)
        and all(0 <= each <= NANOS_MAX for each in prices)
        and 1 <= terms.years <= YEARS_MAX
        and PPM // 100 <= terms.utilisation_ppm <= PPM
        and (known is not None or len(now.set) < MODELS_MAX)
    )
    if not fits:
        raise ComparisonUnclear()
    if known is not None and replace(known, at=terms.at, by=terms.by) == terms:
        return []
    return [terms]


def dedicated_per_hour(terms: ComparisonSet) -> int | None:
    """Return what an hour of use of one's own GPU costs, in nano-units, rounded down; or None."""
    if terms.purchase is None:
        return None
    running = 0 if terms.running is None else terms.running.nanos_per_gpu_hour
    used = terms.years * HOURS_OF_YEAR * terms.utilisation_ppm
    return terms.purchase.nanos * PPM // used + running


def saved(gpu_millis: int, paid_nanos: int, nanos_per_hour: int | None) -> int | None:
    """Return what was saved against a price for each hour; None where there is no such price."""
    if nanos_per_hour is None:
        return None
    return gpu_millis * nanos_per_hour // MILLIS_PER_HOUR - paid_nanos
