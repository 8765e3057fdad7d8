"""An offer's life after it was published: listed, paused, listed again, withdrawn or expired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal, assert_never, get_args

from ledger.domain.money import Rate
from ledger.domain.refusal import Invalid, Refusal, Unknown
from listings.domain.changes import TermsChange, changed, on_terms
from listings.domain.events import (
    GpusListed,
    HostRegistered,
    OfferEvent,
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferTermsChanged,
    OfferWithdrawn,
)
from listings.domain.terms import (
    OfferTerms,
    OfferTermsDiffer,
    as_before,
    cards_of,
    check_floor,
    check_terms,
    publication,
)
from listings.domain.windows import end_of

OfferState = Literal["listed", "paused", "withdrawn", "expired"]
FINAL: frozenset[OfferState] = frozenset({"withdrawn", "expired"})

OfferAction = Literal["pause", "resume", "reprice", "terms", "withdraw"]
OFFER_ACTIONS: tuple[OfferAction, ...] = get_args(OfferAction)


class OfferUnknown(Unknown):
    """There is no such offer."""


class OfferIsWithdrawn(Refusal):
    """The offer is withdrawn; it cannot change any more.

    Publish a new offer for the same GPUs.
    """


class OfferIsExpired(Refusal):
    """The last window of the offer is over; it cannot change any more."""


class OfferIsPaused(Refusal):
    """The offer is paused: it stays as it is until its owner resumes it."""


class OfferNotOver(Refusal):
    """The offer still has a window to come."""


class CurrencyDiffers(Invalid):
    """The floor of an offer stays in the currency it was published in."""


@dataclass(frozen=True)
class Offer:
    """An offer as its events tell it. terms: as published, with those that were changed since.

    floor: of leases to come; that of `terms` is the one it was published with.
    """

    STREAM: ClassVar[str] = "offer"

    published: OfferPublished
    terms: OfferPublished
    floor: Rate
    state: OfferState = "listed"

    @classmethod
    def evolve(cls, state: Offer | None, event: OfferEvent, /) -> Offer:
        """Return the offer after `event`."""
        if isinstance(event, OfferPublished):
            assert state is None
            return cls(published=event, terms=event, floor=event.floor)
        assert state is not None
        match event:
            case OfferRepriced():
                return replace(state, floor=event.floor)
            case OfferTermsChanged():
                return replace(state, terms=on_terms(state.terms, event))
            case OfferPaused():
                return replace(state, state="paused")
            case OfferResumed():
                return replace(state, state="listed")
            case OfferWithdrawn():
                return replace(state, state="withdrawn")
            case OfferExpired():
                return replace(state, state="expired")
            case _:
                assert_never(event)

    def repeat(self, terms: OfferTerms, *, host: HostRegistered) -> list[GpusListed]:
        """Decide on publishing the offer once more: nothing to do, if the terms are the same.

        Judged as of the first time, when its windows were not over yet.

        Raises: OfferTermsDiffer, and a refusal for each term out of bounds.
        """
        said = self.published
        checked = check_terms(terms, now=said.at)
        cards = [uuid for uuid in cards_of(said) if uuid in checked.gpu_uuids]
        again = publication(said.offer_id, checked, host=host, gpus=said.gpus, now=said.at)
        again = as_before(again, terms, said)
        if len(cards) != len(checked.gpu_uuids) or cards_of(said) != tuple(cards) or again != said:
            raise OfferTermsDiffer(offer_id=str(said.offer_id))
        return []

    def reprice(self, floor: Rate, *, now: datetime) -> list[OfferRepriced]:
        """Decide on a new floor for leases to come. Leases granted before keep their price.

        Raises: FloorOutOfBounds, CurrencyDiffers, OfferIsWithdrawn, OfferIsExpired.
        """
        check_floor(floor)
        if floor.currency != self.floor.currency:
            raise CurrencyDiffers(currency=self.floor.currency)
        self._need_open(now=now)
        if floor == self.floor:
            return []
        return [OfferRepriced(offer_id=self.published.offer_id, floor=floor, at=now)]

    def change_terms(self, change: TermsChange, *, now: datetime) -> list[OfferTermsChanged]:
        """Decide on other terms for leases to come. Leases granted before keep theirs.

        Raises: the refusals of `check_promises`, OfferIsWithdrawn, OfferIsExpired.
        """
        event = changed(self.terms, change, now=now)
        self._need_open(now=now)
        return [] if on_terms(self.terms, event) == self.terms else [event]

    def pause(self, *, now: datetime) -> list[OfferPaused]:
        """Decide to give no new leases for now.

        Raises: OfferIsWithdrawn, OfferIsExpired.
        """
        self._need_open(now=now)
        if self.state == "paused":
            return []
        return [OfferPaused(offer_id=self.published.offer_id, at=now)]

    def resume(self, *, now: datetime) -> list[OfferResumed]:
        """Decide to give new leases again.

        Raises: OfferIsWithdrawn, OfferIsExpired.
        """
        self._need_open(now=now)
        if self.state == "listed":
            return []
        return [OfferResumed(offer_id=self.published.offer_id, at=now)]

    def give_way(self, *, now: datetime) -> list[OfferWithdrawn]:
        """Decide to make room for the offer that takes its place in another form.

        Raises: OfferIsPaused, OfferIsWithdrawn, OfferIsExpired.
        """
        self._need_open(now=now)
        if self.state == "paused":
            raise OfferIsPaused(offer_id=str(self.published.offer_id))
        return [OfferWithdrawn(offer_id=self.published.offer_id, at=now)]

    def withdraw(self, *, now: datetime) -> list[OfferWithdrawn]:
        """Decide to take the offer off the market: always possible, nothing to do twice.

        Owners come first (GPUnion's "provider-first"), so no lease can stand in the way.
        """
        if self.state in FINAL:
            return []
        return [OfferWithdrawn(offer_id=self.published.offer_id, at=now)]

    def expire(self, *, now: datetime) -> list[OfferExpired]:
        """Decide that the last window is over.

        Raises: OfferNotOver.
        """
        if self.state in FINAL:
            return []
        if not self.is_over(now=now):
            raise OfferNotOver(offer_id=str(self.published.offer_id))
        return [OfferExpired(offer_id=self.published.offer_id, at=now)]

    def is_over(self, *, now: datetime) -> bool:
        """Test if no window of the offer is left at `now`."""
        end = end_of(self.published.windows, self.published.weekly)
        return end is not None and end <= now

    def _need_open(self, *, now: datetime) -> None:
        end = end_of(self.published.windows, self.published.weekly)
        if refusal := ended(self.state, ends_at=end, now=now):
            raise refusal(offer_id=str(self.published.offer_id))


def ended(
    state: OfferState, *, ends_at: datetime | None, now: datetime
) -> type[OfferIsWithdrawn | OfferIsExpired] | None:
    """Return why an offer cannot change any more; None: it can.

    ends_at: of its last window; None: it has no last one.
    """
    if state == "withdrawn":
        return OfferIsWithdrawn
    if state == "expired" or (ends_at is not None and ends_at <= now):
        return OfferIsExpired
    return None


def offered(
    state: OfferState, *, ends_at: datetime | None, now: datetime
) -> tuple[OfferAction, ...]:
    """Return what its owner may do with an offer at `now`, in the order of `OFFER_ACTIONS`."""
    if ended(state, ends_at=ends_at, now=now) is not None:
        return ()
    useless: OfferAction = "resume" if state == "listed" else "pause"
    return tuple(action for action in OFFER_ACTIONS if action != useless)
