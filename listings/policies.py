"""What follows by itself on the supply side: the second half of what a dead process left undone."""

from __future__ import annotations

from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from listings import commands
from listings.domain.events import (
    FormChosen,
    GpusListed,
    HostRetired,
    OfferExpired,
    OfferWithdrawn,
)
from listings.domain.offers import Offer
from listings.domain.terms import OfferTermsDiffer


def publish_offer_when_gpus_listed(recorded: Recorded, store: EventStore) -> None:
    """A host gave GPUs to an offer: the offer's stream starts, if that has not happened yet."""
    listed = recorded.event
    assert isinstance(listed, GpusListed)
    try:
        commands.finish_listing(
            store,
            host_id=listed.host_id,
            offer_id=listed.offer.offer_id,
            by=Meta.because(recorded, policy="publish-offer-when-gpus-listed"),
            now=listed.at,
        )
    except OfferTermsDiffer:
        # The id was another host's offer all along; finish_listing has given the GPUs back.
        return


def follow_when_form_chosen(recorded: Recorded, store: EventStore) -> None:
    """An offer took another form: the old one is withdrawn, the new one's stream starts."""
    chosen = recorded.event
    assert isinstance(chosen, FormChosen)
    by = Meta.because(recorded, policy="follow-when-form-chosen")
    commands.end_form(store, offer_id=chosen.offer_id, by=by.step("withdraw"), now=chosen.at)
    commands.finish_listing(
        store, host_id=chosen.host_id, offer_id=chosen.offer.offer_id, by=by, now=chosen.at
    )


def unlist_gpus_when_offer_over(recorded: Recorded, store: EventStore) -> None:
    """An offer is withdrawn or expired: its GPUs may be listed again."""
    over = recorded.event
    assert isinstance(over, OfferWithdrawn | OfferExpired)
    offer = load(store, Offer, over.offer_id)
    assert offer is not None
    commands.unlist_offer(
        store,
        host_id=offer.published.host_id,
        offer_id=over.offer_id,
        by=Meta.because(recorded, policy="unlist-gpus-when-offer-over"),
        now=over.at,
    )


def withdraw_offers_when_host_retired(recorded: Recorded, store: EventStore) -> None:
    """A host is gone for good: so are its offers."""
    retired = recorded.event
    assert isinstance(retired, HostRetired)
    commands.withdraw_offers_of(
        store,
        host_id=retired.host_id,
        by=Meta.because(recorded, policy="withdraw-offers-when-host-retired"),
        now=retired.at,
    )


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="listings.publish-offer-when-gpus-listed",
        react=publish_offer_when_gpus_listed,
        on=names_of(GpusListed),
    ),
    Policy(
        name="listings.follow-when-form-chosen",
        react=follow_when_form_chosen,
        on=names_of(FormChosen),
    ),
    Policy(
        name="listings.unlist-gpus-when-offer-over",
        react=unlist_gpus_when_offer_over,
        on=names_of(OfferWithdrawn, OfferExpired),
    ),
    Policy(
        name="listings.withdraw-offers-when-host-retired",
        react=withdraw_offers_when_host_retired,
        on=names_of(HostRetired),
    ),
)
