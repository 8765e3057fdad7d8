"""What can be asked of the supply side: one function a verb. Free of Django.

A request of somebody (`by.tenant_id`) reaches only what belongs to that tenant; anything else is
as unknown to it as what does not exist. Loops and policies carry no tenant and reach all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.eventstore.port import START, EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together
from listings.domain import hosts
from listings.domain.changes import TermsChange
from listings.domain.events import Chosen, Form, Gpu, OfferPublished, OfferSource, Taking
from listings.domain.hosts import Host, HostUnknown
from listings.domain.offers import FINAL, Offer, OfferUnknown
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingPermits, need_permits, permit
from listings.domain.sandboxes import AgentSays
from listings.domain.terms import OfferTerms, OfferTermsDiffer


def register_host(
    store: EventStore,
    *,
    host_id: HostId,
    tenant_id: TenantId,
    title: str,
    market: str,
    region: str,
    labels: Sequence[tuple[str, str]] = (),
    source: OfferSource = "local",
    by: Meta,
    now: datetime,
) -> Position:
    """Make a GPU host known. Its agent reports the GPUs.

    Raises: HostTermsDiffer, TitleUnreadable, NameUnreadable, LabelsUnreadable.
    """
    wanted = hosts.register(
        host_id=host_id,
        tenant_id=tenant_id,
        title=title,
        market=market,
        region=region,
        labels=labels,
        source=source,
        now=now,
    )

    def decide(host: Host | None) -> Sequence[Event]:
        return [wanted] if host is None else host.repeat(wanted)

    return record(store, Host, host_id, decide, by=by)


def report_inventory(
    store: EventStore,
    *,
    host_id: HostId,
    gpus: Sequence[Gpu],
    cards: Mapping[str, str] | None = None,
    says: AgentSays | None = None,
    taking: Taking | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Record the GPUs that a host's agent found, and what it says of itself, where either differs.

    cards: of MIG instances, by their UUID, the UUID of the card each is a part of.
    says: None: nothing; what it said before stands. taking: the same of the switch at the host.
    Raises: HostUnknown, HostIsRetired, TooManyGpus, GpuNamedTwice, GpuUnreadable, MigImpossible.
    """

    def decide(host: Host | None) -> Sequence[Event]:
        own = _own_host(host, host_id, by)
        found: list[Event] = [*own.report(gpus, cards=cards or {}, now=now)]
        found += [] if says is None else own.say(says, now=now)
        return [*found, *([] if taking is None else own.turn(at_host=taking, now=now))]

    return record(store, Host, host_id, decide, by=by)


def turn_switch(
    store: EventStore, *, host_id: HostId, on_market: Taking, by: Meta, now: datetime
) -> Position:
    """Turn the owner's switch of a host on the market; the one at the host is not touched.

    Raises: HostUnknown, HostIsRetired.
    """

    def decide(host: Host | None) -> Sequence[Event]:
        return _own_host(host, host_id, by).turn(on_market=on_market, now=now)

    return record(store, Host, host_id, decide, by=by)


def retire_host(store: EventStore, *, host_id: HostId, by: Meta, now: datetime) -> Position:
    """Take a host off the market for good and withdraw its offers.

    Returns: the position at which the host is retired and its last offer withdrawn.
    Raises: HostUnknown.
    """

    def decide(host: Host | None) -> Sequence[Event]:
        return _own_host(host, host_id, by).retire(now=now)

    position = record(store, Host, host_id, decide, by=by)
    return max(position, withdraw_offers_of(store, host_id=host_id, by=by, now=now))


def publish_offer(
    store: EventStore,
    *,
    offer_id: OfferId,
    host_id: HostId,
    terms: OfferTerms,
    by: Meta,
    now: datetime,
) -> Position:
    """Put GPUs of one host on the market.

    The host decides, because it sees all offers of its GPUs; then the offer's own stream starts.
    Should this process die between the two, `finish_listing` does the rest.

    Raises:
        HostUnknown, HostIsRetired, GpuNotOnHost, GpuListedAlready, TooManyOffers,
        OfferTermsDiffer, IsolationUnfit, ListingNotAllowed, and a refusal for each term out of
        bounds.
    """
    earlier = load(store, Offer, offer_id)

    def decide(host: Host | None) -> Sequence[Event]:
        owned = _own_host(host, host_id, by)
        if earlier is None:
            listed = owned.list_gpus(offer_id, terms, now=now)
            for each in listed:
                _need_permits(store, each.offer, owned.models_of(each.offer))
            return listed
        return earlier.repeat(terms, host=owned.registered)

    position = record(store, Host, host_id, decide, by=by)
    return max(position, finish_listing(store, host_id=host_id, offer_id=offer_id, by=by, now=now))


def allow_listing(
    store: EventStore, *, permitted: ListingAllowed, by_platform: bool, by: Meta
) -> Position:
    """Decide who may list what on a market; offers that are there already stay.

    Raises: PermitsNotYours, PermitClassUnreadable, TooManyPermits.
    """
    return record_together(store, [permitting([permitted], by_platform=by_platform, by=by)])[0]


def permitting(permits: Sequence[ListingAllowed], *, by_platform: bool, by: Meta) -> Part:
    """Return the part of an append that decides who may list what on one market, in this order.

    Its rule refuses as `allow_listing`, all of them or none.
    """

    def decide(known: ListingPermits | None) -> Sequence[ListingAllowed]:
        found = list[ListingAllowed]()
        for permitted in permits:
            for event in permit(known, permitted, by_platform=by_platform):
                known = ListingPermits.evolve(known, event)
                found.append(event)
        return found

    (market,) = {permitted.market for permitted in permits}
    return Part(ListingPermits, market, decide, by)


def finish_listing(
    store: EventStore, *, host_id: HostId, offer_id: OfferId, by: Meta, now: datetime
) -> Position:
    """Start the stream of an offer whose GPUs are listed on the host. Harmless when repeated.

    Raises:
        OfferTermsDiffer: the id belongs to an offer of another host; this host's GPUs are free
            again.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        if offer is not None:
            if offer.published.host_id != host_id:
                raise OfferTermsDiffer(offer_id=str(offer_id))
            return []
        host = load(store, Host, host_id)
        assert host is not None
        return [host.listed[offer_id]]

    unlist = by.step("unlist")
    try:
        position = record(store, Offer, offer_id, decide, by=by)
    except OfferTermsDiffer:
        unlist_offer(store, host_id=host_id, offer_id=offer_id, by=unlist, now=now)
        raise
    offer = load(store, Offer, offer_id)
    if offer is not None and offer.state in FINAL:
        unlist_offer(store, host_id=host_id, offer_id=offer_id, by=unlist, now=now)
    return position


def reprice_offer(
    store: EventStore, *, offer_id: OfferId, floor: Rate, by: Meta, now: datetime
) -> Position:
    """Change the floor for leases to come.

    Raises:
        OfferUnknown, FloorOutOfBounds, CurrencyDiffers, OfferIsWithdrawn, OfferIsExpired.
    """
    return change_offer(store, offer_id=offer_id, floor=floor, by=by, now=now)


def change_offer(
    store: EventStore,
    *,
    offer_id: OfferId,
    floor: Rate | None = None,
    terms: TermsChange | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Change the floor, other terms, or both at once, for leases to come. None: as before.

    Raises:
        OfferUnknown, OfferIsWithdrawn, OfferIsExpired, FloorOutOfBounds, CurrencyDiffers, and the
        refusals of `check_promises`.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        own = _own_offer(offer, offer_id, by)
        repriced = [] if floor is None else own.reprice(floor, now=now)
        return [*repriced, *([] if terms is None else own.change_terms(terms, now=now))]

    return record(store, Offer, offer_id, decide, by=by)


def pause_offer(store: EventStore, *, offer_id: OfferId, by: Meta, now: datetime) -> Position:
    """Give no new leases for now.

    Raises: OfferUnknown, OfferIsWithdrawn, OfferIsExpired.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        return _own_offer(offer, offer_id, by).pause(now=now)

    return record(store, Offer, offer_id, decide, by=by)


def resume_offer(store: EventStore, *, offer_id: OfferId, by: Meta, now: datetime) -> Position:
    """Give new leases again.

    Raises: OfferUnknown, OfferIsWithdrawn, OfferIsExpired.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        return _own_offer(offer, offer_id, by).resume(now=now)

    return record(store, Offer, offer_id, decide, by=by)


def withdraw_offer(store: EventStore, *, offer_id: OfferId, by: Meta, now: datetime) -> Position:
    """Take an offer off the market: always possible. Leases granted before run on.

    One by demand that is in another form by now is withdrawn as it is: to its owner it is the same.

    Raises: OfferUnknown.
    """
    position = end_form(store, offer_id=offer_id, by=by, now=now)
    latest = _form_now(store, offer_id)
    if latest is None:
        return position
    offer_id, by = latest.offer_id, by.step(str(latest.offer_id))
    finish_listing(store, host_id=latest.host_id, offer_id=offer_id, by=by, now=now)
    return withdraw_offer(store, offer_id=offer_id, by=by.step("withdraw"), now=now)


def end_form(store: EventStore, *, offer_id: OfferId, by: Meta, now: datetime) -> Position:
    """Withdraw an offer, and not what took its place in another form.

    Raises: OfferUnknown.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        return _own_offer(offer, offer_id, by).withdraw(now=now)

    position = record(store, Offer, offer_id, decide, by=by)
    return max(position, _free_gpus(store, offer_id, by=by, now=now))


def expire_offer(store: EventStore, *, offer_id: OfferId, by: Meta, now: datetime) -> Position:
    """Close an offer whose last window is over.

    Raises: OfferUnknown, OfferNotOver.
    """

    def decide(offer: Offer | None) -> Sequence[Event]:
        return _own_offer(offer, offer_id, by).expire(now=now)

    position = record(store, Offer, offer_id, decide, by=by)
    return max(position, _free_gpus(store, offer_id, by=by, now=now))


def choose_form(
    store: EventStore,
    *,
    offer: OfferPublished,
    form: Form,
    offer_id: OfferId,
    chosen: Chosen,
    by: Meta,
    now: datetime,
) -> Position:
    """Put an offer by demand in another form: a new one, `offer_id`, takes its place on the host.

    The old one is withdrawn by the same append, so that whoever withdraws or pauses it first is
    obeyed. Should this process die after that, policies start the new one's stream.

    Raises:
        OfferUnknown, OfferIsGone, OfferIsPaused, OfferIsWithdrawn, OfferIsExpired, HostIsRetired,
        GpuNotOnHost, FormNotAllowed, FormTooYoung, ListingNotAllowed, and the refusals of a
        division.
    """

    def on_host(host: Host | None) -> Sequence[Event]:
        # Read each time: terms that change meanwhile move the stream, and all is asked again.
        old = load(store, Offer, offer.offer_id)
        if old is None:
            raise OfferUnknown(offer_id=offer.offer_id)
        formed = _own_host(host, offer.host_id, by).reform(
            old.terms, form, floor=old.floor, offer_id=offer_id, chosen=chosen, now=now
        )
        for each in formed:
            _need_permits(store, each.offer, {gpu.model for gpu in each.offer.gpus})
        return formed

    def on_offer(state: Offer | None) -> Sequence[Event]:
        return _own_offer(state, offer.offer_id, by).give_way(now=now)

    record_together(
        store,
        [Part(Host, offer.host_id, on_host, by), Part(Offer, offer.offer_id, on_offer, by)],
        alone=True,
    )
    return finish_listing(
        store, host_id=offer.host_id, offer_id=offer_id, by=by.step("publish"), now=now
    )


def unlist_offer(
    store: EventStore, *, host_id: HostId, offer_id: OfferId, by: Meta, now: datetime
) -> Position:
    """Let the GPUs of an offer that is over be listed again. Harmless when repeated."""

    def decide(host: Host | None) -> Sequence[Event]:
        return [] if host is None else host.unlist(offer_id, now=now)

    return record(store, Host, host_id, decide, by=by)


def withdraw_offers_of(store: EventStore, *, host_id: HostId, by: Meta, now: datetime) -> Position:
    """Withdraw every offer of a host, one that is only half published as well.

    Raises: HostUnknown.
    """
    host = _own_host(load(store, Host, host_id), host_id, by)
    positions = [START]
    for offer_id in host.listed:
        step = by.step(str(offer_id))
        finish_listing(store, host_id=host_id, offer_id=offer_id, by=step, now=now)
        positions.append(
            withdraw_offer(store, offer_id=offer_id, by=step.step("withdraw"), now=now)
        )
    return max(positions)


def _free_gpus(store: EventStore, offer_id: OfferId, *, by: Meta, now: datetime) -> Position:
    offer = load(store, Offer, offer_id)
    assert offer is not None
    assert offer.state in FINAL
    host_id = offer.published.host_id
    return unlist_offer(store, host_id=host_id, offer_id=offer_id, by=by, now=now)


def _form_now(store: EventStore, offer_id: OfferId) -> OfferPublished | None:
    """Return the offer that is listed in the place of another that changed its form, if any."""
    first = load(store, Offer, offer_id)
    assert first is not None
    host = load(store, Host, first.published.host_id)
    for latest in () if host is None else host.listed.values():
        each: OfferPublished | None = latest
        while each is not None and each.chosen is not None and each.at >= first.published.at:
            if each.chosen.instead_of == offer_id:
                return latest
            before = load(store, Offer, each.chosen.instead_of)
            each = None if before is None else before.published
    return None


def _need_permits(store: EventStore, offer: OfferPublished, models: Iterable[str]) -> None:
    """Refuse what an offer would list and its owner may not. Raises: ListingNotAllowed."""
    need_permits(load(store, ListingPermits, offer.market), offer.tenant_id, models)


def _own_host(host: Host | None, host_id: HostId, by: Meta) -> Host:
    if host is None or by.tenant_id not in (None, host.registered.tenant_id):
        raise HostUnknown(host_id=str(host_id))
    return host


def _own_offer(offer: Offer | None, offer_id: OfferId, by: Meta) -> Offer:
    if offer is None or by.tenant_id not in (None, offer.published.tenant_id):
        raise OfferUnknown(offer_id=str(offer_id))
    return offer
