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


def credit_ppm(terms: SlaTerms, *, late_seconds: int | None, available_ppm: int) -> int:
    """Return the share of its charge that is credited to a lease that was served like this.

    For its start and its availability together, at most all of it. late_seconds: None: it never
    started.
    """
    late = late_credit(terms, late_seconds=late_seconds)
    return min(PPM, late + availability_credit(terms, available_ppm=available_ppm))


class Miss(NamedTuple):
    """One way to miss a promise, and the share of the charge that is credited for it.

    late_seconds: it starts later than so; None: in time. below_ppm: it is available for less than
    so; None: for long enough.
    """

    late_seconds: int | None
    below_ppm: int | None
    credit_ppm: int


def misses(terms: SlaTerms) -> tuple[Miss, ...]:
    """Return what can be missed: the start, each availability, and last both at their worst."""
    late, belows = terms.start_by_seconds, [step.below_ppm for step in terms.steps]
    ways: list[tuple[int | None, int | None]] = [(late, None)] if late is not None else []
    ways += [(None, below) for below in belows]
    if late is not None and belows:
        ways.append((late, belows[-1]))
    return tuple(Miss(*way, _credit_of(terms, *way)) for way in ways)


def _credit_of(terms: SlaTerms, late: int | None, below: int | None) -> int:
    return credit_ppm(
        terms,
        late_seconds=0 if late is None else late + 1,
        available_ppm=PPM if below is None else below - 1,
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
    return [_sentence(miss) for miss in misses(terms)]


def _sentence(miss: Miss) -> str:
    credited = f"{_percent(miss.credit_ppm)} of its charge are credited."
    if miss.below_ppm is None:
        within = f"The work starts within {miss.late_seconds} seconds of the lease's begin"
        return f"{within}, or {credited}"
    if miss.late_seconds is not None:
        return f"Late, and available for less than {_percent(miss.below_ppm)}: {credited}"
    return (
        f"Available for less than {_percent(miss.below_ppm)} of its granted time, by the owner's"
        f" fault: {credited}"
    )


def missed(miss: Miss) -> str:
    """Return in a few words what is missed, as a line of a table says it."""
    late = "" if miss.late_seconds is None else f"starts more than {miss.late_seconds} s late"
    if miss.below_ppm is None:
        return late
    short = f"available for less than {_percent(miss.below_ppm)} of its time"
    return f"{late}, and {short}" if late else short


def _percent(ppm: int) -> str:
    whole, rest = divmod(ppm, 10_000)
    fraction = f"{rest:04d}".rstrip("0")
    return f"{whole}.{fraction} %" if fraction else f"{whole} %"


__all__ = [
    "NO_LEVEL",
    "Miss",
    "OfferSla",
    "ServiceLevel",
    "SlaStep",
    "SlaTerms",
    "SlaUnreadable",
    "availability_credit",
    "check_sla",
    "credit_ppm",
    "late_credit",
    "missed",
    "misses",
    "sentences",
    "set_sla",
]
