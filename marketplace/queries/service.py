"""What a miss of what owners promise would bring to a bid, worked out before it is placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.domain.money import Money
from ledger.domain.sla_credits import owners_part
from listings.domain.events import OfferPublished
from listings.domain.sla import NO_LEVEL, Miss, ServiceLevel, missed, misses
from listings.domain.sla_events import SlaTerms
from marketplace.domain.book.promises import Promises
from marketplace.domain.facts.events import Share


@dataclass(frozen=True, slots=True)
class Short:
    """One way to fall short of a promise, and what is credited at the quoted cost."""

    miss: Miss
    credit: Money

    @property
    def text(self) -> str:
        """Return what falls short, in a few words."""
        return missed(self.miss)


@dataclass(frozen=True, slots=True)
class Service:
    """What is promised of the service of so many GPUs, and what each way to miss it credits."""

    gpus: int
    terms: SlaTerms
    short: tuple[Short, ...]


@dataclass(frozen=True, slots=True)
class ServiceListed:
    """On how many listed GPUs a promise of service stands, and the best that is promised.

    start_seconds: the soonest start; availability_ppm: the highest; None: nobody promises one.
    """

    gpus: int
    start_seconds: int | None
    availability_ppm: int | None


def service_listed(levels: Iterable[ServiceLevel]) -> ServiceListed | None:
    """Return what is promised of some listed GPUs; None: nothing. levels: of each GPU."""
    found = [level for level in levels if level != NO_LEVEL]
    if not found:
        return None
    starts = (each.start_seconds for each in found if each.start_seconds is not None)
    available = (each.availability_ppm for each in found if each.availability_ppm is not None)
    return ServiceListed(len(found), min(starts, default=None), max(available, default=None))


def service_of(
    agreed: Sequence[OfferPublished | Share], promises: Promises, cost: Money
) -> tuple[Service, ...]:
    """Return the promises of the GPUs that a bid would get, each once, with their number.

    By the rules of the credit itself, if all of the time is used. agreed: of each GPU. The rest of
    another's lease comes without a promise.
    """
    counted = Counter(
        promises.said[each.offer_id]
        for each in agreed
        if getattr(each, "resold", None) is None and each.offer_id in promises.said
    )
    return tuple(
        Service(gpus, terms, _short(terms, owners_part(cost, gpus=gpus, of_gpus=len(agreed))))
        for terms, gpus in counted.items()
    )


def _short(terms: SlaTerms, charge: Money) -> tuple[Short, ...]:
    return tuple(Short(miss, charge.share(miss.credit_ppm)) for miss in misses(terms))
