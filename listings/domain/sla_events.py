"""What owners promise of the service of an offer: streams offer-sla-<offer id>."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import OfferId, TenantId


@dataclass(frozen=True, slots=True)
class SlaStep:
    """Available for less than `below_ppm` of its time, a lease is credited `credit_ppm`."""

    below_ppm: int
    credit_ppm: int


@dataclass(frozen=True, slots=True)
class SlaTerms:
    """What is promised, and which share of a lease's charge is credited where it is missed.

    start_by_seconds: after its begin at most, until its work has started; None: not promised.
    late_credit_ppm: for a later start. steps: by availability, the highest first.
    """

    start_by_seconds: int | None = None
    late_credit_ppm: int = 0
    steps: tuple[SlaStep, ...] = ()


class OfferSlaSet(Event, name="listings.offer-sla-set"):
    """The owner promises this to leases that are granted from now on; terms None: nothing."""

    offer_id: OfferId
    owner_id: TenantId
    terms: SlaTerms | None
    at: datetime
