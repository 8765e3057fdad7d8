"""What an owner may say anew of an offer that stands: what leases to come are granted on.

Windows, GPUs, how they are divided and cleaned stay: leases that run were planned by them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime

from listings.domain.events import OfferPublished, OfferTermsChanged, ReclaimStep
from listings.domain.terms import OfferTerms, cards_of, check_promises


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsChange:
    """What an owner says anew; None: that stays. Fields as of `OfferTerms`.

    grace_seconds None: it stays, but is never longer than the notice.
    """

    lease_min_seconds: int | None = None
    notice_seconds: int | None = None
    grace_seconds: int | None = None
    reclaim_fee_ppm: int | None = None
    reclaim_steps: tuple[ReclaimStep, ...] | None = None
    workload_kinds: tuple[str, ...] | None = None


CHANGING = tuple(field.name for field in fields(TermsChange))
"""The names of the terms that may change."""


def changed(offer: OfferPublished, change: TermsChange, *, now: datetime) -> OfferTermsChanged:
    """Return the fact that some terms of an offer are others now.

    offer: as it stands. Raises: the refusals of `check_promises`.
    """
    terms = OfferTerms(
        gpu_uuids=cards_of(offer),
        windows=offer.windows,
        weekly=offer.weekly,
        floor=offer.floor,
        **{name: getattr(offer, name) for name in CHANGING},
    )
    said = {name: getattr(change, name) for name in CHANGING}
    terms = replace(terms, **{name: value for name, value in said.items() if value is not None})
    if change.grace_seconds is None:
        terms = replace(terms, grace_seconds=min(offer.grace_seconds, terms.notice_seconds))
    checked = check_promises(terms)
    return OfferTermsChanged(
        offer_id=offer.offer_id, **{name: getattr(checked, name) for name in CHANGING}, at=now
    )


def on_terms(offer: OfferPublished, event: OfferTermsChanged) -> OfferPublished:
    """Return an offer as it stands once its terms are changed."""
    return replace(offer, **{name: getattr(event, name) for name in CHANGING})
