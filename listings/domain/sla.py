"""What an owner promises of an offer's service, and which share is credited where it is missed.

A fact of its own beside the offer's terms. A bid may ask for a level of service: offers that
promise less do not fit. A lease has the promises that stood when it was granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NamedTuple

from ledger.domain.ids import OfferId, TenantId
from ledger.domain.refusal import Invalid
from listings.domain.sla_events import OfferSlaSet, SlaStep, SlaTerms

PPM = 1_000_000
START_BY_SECONDS_MAX = 86_400
STEPS_MAX = 8


class SlaUnreadable(Invalid):
    """A promise is a start within a day, an availability below 100 %, or both, each with a credit.

    A step says below which availability which share is credited. Each has less availability and a
    larger share than the one before; at most eight of them. Shares lie above 0 and up to 100 %.
    """


def check_sla(terms: SlaTerms) -> SlaTerms:
    """Return terms that can be promised.

    Raises: SlaUnreadable.
    """
    start_by, late = terms.start_by_seconds, terms.late_credit_ppm
    starts = start_by is None and late == 0
    if start_by is not None:
        starts = 0 < start_by <= START_BY_SECONDS_MAX and 0 < late <= PPM
    below = [step.below_ppm for step in terms.steps]
    credits_ = [step.credit_ppm for step in terms.steps]
    falls = below == sorted(set(below), reverse=True) and credits_ == sorted(set(credits_))
    within = all(0 < each <= PPM for each in (*below, *credits_))
    promised = start_by is not None or bool(terms.steps)
    if not (starts and falls and within and promised and len(below) <= STEPS_MAX):
        raise SlaUnreadable(steps_max=STEPS_MAX, seconds_max=START_BY_SECONDS_MAX)
    return terms


def late_credit(terms: SlaTerms, *, late_seconds: int | None) -> int:
    """Return the share credited for a start so long after a lease began; None: it never started.

    In millionths of what the owner's GPUs were charged.
    """
    if terms.start_by_seconds is None:
        return 0
    missed = late_seconds is None or late_seconds > terms.start_by_seconds
    return terms.late_credit_ppm if missed else 0


def availability_credit(terms: SlaTerms, *, available_ppm: int) -> int:
    """Return the share credited for an availability: that of the lowest step it is below."""
    return max(
        (step.credit_ppm for step in terms.steps if available_ppm < step.below_ppm), default=0
    )


class ServiceLevel(NamedTuple):
    """A start within so many seconds and an availability; None: no matter, or not promised."""

    start_seconds: int | None = None
    availability_ppm: int | None = None

    @classmethod
    def of(cls, terms: SlaTerms | None) -> ServiceLevel:
        """Return what terms promise: the availability is that of their highest step."""
        if terms is None:
            return NO_LEVEL
        highest = max((step.below_ppm for step in terms.steps), default=None)
        return cls(terms.start_by_seconds, highest)

    def starts_within(self, wanted: int | None) -> bool:
        """Tell if this promises a start within so many seconds; None: any will do."""
        promised = self.start_seconds
        return wanted is None or (promised is not None and promised <= wanted)

    def is_available(self, wanted_ppm: int | None) -> bool:
        """Tell if this promises at least that availability; None: any will do."""
        return wanted_ppm is None or (self.availability_ppm or 0) >= wanted_ppm

    def meets(self, wanted: ServiceLevel) -> bool:
        """Tell if this promises all that is wanted."""
        return self.starts_within(wanted.start_seconds) and self.is_available(
            wanted.availability_ppm
        )


NO_LEVEL = ServiceLevel()
"""Nothing is promised, or wanted."""


@dataclass(frozen=True, slots=True)
class OfferSla:
    """What is promised of an offer, and since when."""

    STREAM: ClassVar[str] = "offer-sla"

    said: tuple[OfferSlaSet, ...] = ()

    @classmethod
    def evolve(cls, state: OfferSla | None, event: OfferSlaSet, /) -> OfferSla:
        """Return the promises after `event`."""
        return cls((*(state.said if state is not None else ()), event))

    def at(self, moment: datetime, wanted: ServiceLevel = NO_LEVEL) -> SlaTerms | None:
        """Return what was promised to a lease that was granted at a moment.

        wanted: what its bid asked for. Where that was promised when the market cleared, and less
        by the time of the grant, it is what was promised last of what is enough.
        """
        known = [each.terms for each in self.said if each.at <= moment]
        enough = [terms for terms in known if ServiceLevel.of(terms).meets(wanted)]
        return (enough or known or [None])[-1]


def set_sla(
    before: OfferSla | None,
    *,
    offer_id: OfferId,
    owner_id: TenantId,
    terms: SlaTerms | None,
    now: datetime,
) -> list[OfferSlaSet]:
    """Decide what an owner promises from now on; None: nothing. The same again changes nothing.

    Leases granted before keep what they were granted on.

    Raises: SlaUnreadable.
    """
    checked = None if terms is None else check_sla(terms)
    current = before.said[-1].terms if before is not None and before.said else None
    if checked == current:
        return []
    return [OfferSlaSet(offer_id=offer_id, owner_id=owner_id, terms=checked, at=now)]


def sentences(terms: SlaTerms) -> list[str]:
    """Return what is promised and credited, a sentence each: shown before anybody consents."""
    told = []
    if terms.start_by_seconds is not None:
        told.append(
            f"The work starts within {terms.start_by_seconds} seconds of the lease's begin, or"
            f" {_percent(terms.late_credit_ppm)} of its charge are credited."
        )
    told += [
        f"Available for less than {_percent(step.below_ppm)} of its granted time, by the owner's"
        f" fault: {_percent(step.credit_ppm)} of its charge are credited."
        for step in terms.steps
    ]
    return told


def _percent(ppm: int) -> str:
    whole, rest = divmod(ppm, 10_000)
    fraction = f"{rest:04d}".rstrip("0")
    return f"{whole}.{fraction} %" if fraction else f"{whole} %"


__all__ = [
    "NO_LEVEL",
    "OfferSla",
    "ServiceLevel",
    "SlaStep",
    "SlaTerms",
    "SlaUnreadable",
    "availability_credit",
    "check_sla",
    "late_credit",
    "sentences",
    "set_sla",
]
