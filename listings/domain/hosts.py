"""An owner's machine: which GPUs it has, and which of them are listed when.

The host's stream is where a GPU is put on the market: it alone sees every offer of its GPUs, so it
alone can refuse two of them at one time. The offer's own stream follows from that decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, assert_never

from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal, Unknown
from ledger.domain.span import Window
from listings.domain import maintenance
from listings.domain.divisions import read_share
from listings.domain.events import (
    Chosen,
    Form,
    FormChosen,
    Gpu,
    GpuNote,
    GpuNoted,
    GpuQuarantined,
    GpuReleased,
    GpusListed,
    GpusUnlisted,
    HostAbilitiesReported,
    HostEvent,
    HostFellSilent,
    HostRegistered,
    HostRetired,
    HostReturned,
    HostTakingChanged,
    InventoryReported,
    OfferPublished,
    OfferSource,
    Taking,
    UnfitReason,
)
from listings.domain.fitness import Returned, is_news, kind_of, relapses
from listings.domain.forms import reformed
from listings.domain.gpus import check_inventory, own_model
from listings.domain.maintenance_events import (
    MaintenanceAnnounced,
    MaintenanceCancelled,
    MaintenanceMoved,
)
from listings.domain.sandboxes import NOTHING_SAID, AgentSays
from listings.domain.terms import (
    OfferTerms,
    OfferTermsDiffer,
    as_before,
    cards_of,
    check_labels,
    check_name,
    check_terms,
    check_title,
    divided,
    in_pieces,
    publication,
    same_terms,
)
from listings.domain.windows import COMPARED_AHEAD, first_overlap, windows_of

OFFERS_PER_HOST_MAX = 1_000
DETAIL_CHARS_MAX = 500


class HostUnknown(Unknown):
    """There is no such host."""


class HostTermsDiffer(Refusal):
    """A host with this id is registered already, with other terms."""


class HostIsRetired(Refusal):
    """The host is retired: it cannot report or list GPUs any more."""


class GpuNotOnHost(Refusal):
    """The host has not reported that GPU.

    Start the agent on the host, or check the UUID with nvidia-smi -L.
    """


class GpuListedAlready(Refusal):
    """That GPU is offered already during one of these windows.

    Whole or in parts: a card is offered in one form at a time. Withdraw the other offer, or choose
    windows that do not overlap with it.
    """


class OfferIsGone(Refusal):
    """The offer has its GPUs no longer: it is withdrawn, over, or was put in another form."""


class TooManyOffers(Refusal):
    """A host has at most a thousand offers at one time."""


def _listed_after(
    listed: Mapping[OfferId, OfferPublished], event: GpusListed | GpusUnlisted | FormChosen
) -> Mapping[OfferId, OfferPublished]:
    """Return the offers that hold GPUs of a host after one more fact of them."""
    gone = None if isinstance(event, GpusListed) else event.offer_id
    rest = {k: v for k, v in listed.items() if k != gone}
    return rest if isinstance(event, GpusUnlisted) else {**rest, event.offer.offer_id: event.offer}


def register(
    *,
    host_id: HostId,
    tenant_id: TenantId,
    title: str,
    market: str,
    region: str,
    labels: Sequence[tuple[str, str]],
    source: OfferSource,
    now: datetime,
) -> HostRegistered:
    """Decide whether a host may be made known.

    Raises: TitleUnreadable, NameUnreadable, LabelsUnreadable.
    """
    return HostRegistered(
        host_id=host_id,
        tenant_id=tenant_id,
        title=check_title(title),
        market=check_name(market),
        region=check_name(region),
        labels=check_labels(labels),
        source=source,
        at=now,
    )


@dataclass(frozen=True)
class Host:
    """A host as its events tell it. listed: the offers that hold GPUs of it now.

    unfit: its GPUs that are not leased for now, each with why. said: what its agent last said of
    itself; None: nothing yet. returned: its GPUs that were released, with their last return.
    notes: the last of each kind of each GPU. at_host, on_market: what its owner lets be done, by
    both switches.
    """

    STREAM: ClassVar[str] = "host"

    registered: HostRegistered
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    listed: Mapping[OfferId, OfferPublished] = field(default_factory=dict)
    is_retired: bool = False
    is_silent: bool = False
    unfit: Mapping[str, GpuQuarantined] = field(default_factory=dict)
    said: HostAbilitiesReported | None = None
    returned: Mapping[str, Returned] = field(default_factory=dict)
    notes: Mapping[tuple[str, str], GpuNoted] = field(default_factory=dict)
    maintenance: maintenance.Planned = field(default_factory=dict)
    at_host: Taking = "all"
    on_market: Taking = "all"

    @classmethod
    def evolve(cls, state: Host | None, event: HostEvent, /) -> Host:
        """Return the host after `event`."""
        if isinstance(event, HostRegistered):
            assert state is None
            return cls(registered=event)
        assert state is not None
        match event:
            case InventoryReported():
                return replace(state, gpus={gpu.uuid: gpu for gpu in event.gpus})
            case GpusListed() | GpusUnlisted() | FormChosen():
                return replace(state, listed=_listed_after(state.listed, event))
            case HostAbilitiesReported():
                return replace(state, said=event)
            case HostFellSilent():
                return replace(state, is_silent=True)
            case HostReturned():
                return replace(state, is_silent=False)
            case HostTakingChanged():
                return replace(state, at_host=event.at_host, on_market=event.on_market)
            case GpuQuarantined():
                return replace(state, unfit={**state.unfit, event.gpu_uuid: event})
            case GpuReleased():
                left = {k: v for k, v in state.unfit.items() if k != event.gpu_uuid}
                fault = state.unfit.get(event.gpu_uuid)
                last = Returned(event.at, 0 if fault is None else fault.relapses)
                returned = {**state.returned, event.gpu_uuid: last}
                return replace(state, unfit=left, returned=returned)
            case GpuNoted():
                key = event.gpu_uuid, kind_of(event.note)
                return replace(state, notes={**state.notes, key: event})
            case MaintenanceAnnounced() | MaintenanceMoved() | MaintenanceCancelled():
                planned = maintenance.after(state.maintenance, event)
                return replace(state, maintenance=planned)
            case HostRetired():
                return replace(state, is_retired=True)
            case _:
                assert_never(event)

    @property
    def host_id(self) -> HostId:
        """Return the host's id."""
        return self.registered.host_id

    def repeat(self, wanted: HostRegistered) -> list[HostRegistered]:
        """Decide on registering the host once more: nothing to do, if the terms are the same.

        Raises: HostTermsDiffer.
        """
        if replace(wanted, at=self.registered.at) != self.registered:
            raise HostTermsDiffer(host_id=str(self.host_id))
        return []

    def report(
        self, gpus: Sequence[Gpu], *, cards: Mapping[str, str], now: datetime
    ) -> list[InventoryReported]:
        """Decide what a report of the agent changes: nothing, where it says the same as before.

        Raises: HostIsRetired, and the refusals of `check_inventory`.
        """
        found = check_inventory(gpus, cards)
        if self.is_retired:
            raise HostIsRetired(host_id=str(self.host_id))
        if {gpu.uuid: gpu for gpu in found} == self.gpus:
            return []
        return [InventoryReported(host_id=self.host_id, gpus=found, at=now)]

    def say(self, says: AgentSays, *, now: datetime) -> list[HostAbilitiesReported]:
        """Decide what changes when the agent says this of itself: nothing, where it did before."""
        if says == (NOTHING_SAID if self.said is None else AgentSays.of(self.said)):
            return []
        return [
            HostAbilitiesReported(
                host_id=self.host_id,
                sandbox=says.sandbox,
                enforces=says.enforces,
                abilities=says.abilities,
                at=now,
            )
        ]

    def turn(
        self, *, at_host: Taking | None = None, on_market: Taking | None = None, now: datetime
    ) -> list[HostTakingChanged]:
        """Decide what follows when the owner turns a switch; nothing, where it stands so already.

        None: that switch stays. Raises: HostIsRetired.
        """
        both = at_host or self.at_host, on_market or self.on_market
        if both == (self.at_host, self.on_market):
            return []
        if self.is_retired:
            raise HostIsRetired(host_id=str(self.host_id))
        return [HostTakingChanged(host_id=self.host_id, at_host=both[0], on_market=both[1], at=now)]

    def fall_silent(self, *, heard_at: datetime, now: datetime) -> list[HostFellSilent]:
        """Decide that nothing of the host is leased, because its agent is not heard; once."""
        if self.is_silent or self.is_retired:
            return []
        return [HostFellSilent(host_id=self.host_id, heard_at=heard_at, at=now)]

    def come_back(self, *, now: datetime) -> list[HostReturned]:
        """Decide that the host is heard again."""
        return [HostReturned(host_id=self.host_id, at=now)] if self.is_silent else []

    def quarantine(
        self, gpu_uuid: str, *, reason: UnfitReason, detail: str, now: datetime
    ) -> list[GpuQuarantined]:
        """Decide that a GPU is not leased for now; the first reason stays until it is released."""
        if gpu_uuid in self.unfit or self.is_retired:
            return []
        said = detail[:DETAIL_CHARS_MAX]
        return [
            GpuQuarantined(
                host_id=self.host_id,
                gpu_uuid=gpu_uuid,
                reason=reason,
                detail=said,
                at=now,
                relapses=relapses(self.returned.get(gpu_uuid), now=now),
            )
        ]

    def release(self, gpu_uuid: str, *, now: datetime) -> list[GpuReleased]:
        """Decide that a GPU is fit again."""
        if gpu_uuid not in self.unfit:
            return []
        return [GpuReleased(host_id=self.host_id, gpu_uuid=gpu_uuid, at=now)]

    def note(self, gpu_uuid: str, note: GpuNote, *, detail: str, now: datetime) -> list[GpuNoted]:
        """Decide whether what is told of a GPU is news."""
        last, said = self.notes.get((gpu_uuid, kind_of(note))), detail[:DETAIL_CHARS_MAX]
        if self.is_retired or not is_news(note, said, last, now=now):
            return []
        return [GpuNoted(host_id=self.host_id, gpu_uuid=gpu_uuid, note=note, detail=said, at=now)]

    def list_gpus(self, offer_id: OfferId, terms: OfferTerms, *, now: datetime) -> list[GpusListed]:
        """Decide whether GPUs may be offered: they are the host's and not offered at that time.

        Raises:
            HostIsRetired, GpuNotOnHost, GpuListedAlready, TooManyOffers, OfferTermsDiffer,
            IsolationUnfit, SharesUnfit, MigLayoutImpossible, MigModeOn, TooManyGpus, and the
            refusals of `check_terms`.
        """
        known = self.listed.get(offer_id)
        # A repeat is judged as of its first time, when its windows were not over yet.
        checked = check_terms(terms, now=known.at if known else now)
        missing = [uuid for uuid in checked.gpu_uuids if uuid not in self.gpus]
        if missing:
            raise GpuNotOnHost(gpu_uuids=missing)
        # Inventories from before instances were named by profile name them by their card.
        cards = [
            replace(gpu, model=own_model(gpu))
            for gpu in map(self.gpus.__getitem__, checked.gpu_uuids)
        ]
        for form in () if checked.by_demand is None else checked.by_demand.forms:
            divided(replace(checked, division=form.division), cards)
        gpus = divided(checked, cards)
        offer = publication(offer_id, checked, host=self.registered, gpus=gpus, now=now)
        if known is not None:
            if not same_terms(known, as_before(offer, terms, known)):
                raise OfferTermsDiffer(offer_id=str(offer_id))
            return []
        if self.is_retired:
            raise HostIsRetired(host_id=str(self.host_id))
        if len(self.listed) >= OFFERS_PER_HOST_MAX:
            raise TooManyOffers(offers_max=OFFERS_PER_HOST_MAX)
        self._refuse_overlap(offer, now=now)
        return [GpusListed(host_id=self.host_id, offer=offer, at=now)]

    def reform(
        self,
        offer: OfferPublished,
        form: Form,
        *,
        floor: Rate,
        offer_id: OfferId,
        chosen: Chosen,
        now: datetime,
    ) -> list[FormChosen]:
        """Decide to put an offer in another form, which its cards can take; nothing to do twice.

        Raises:
            HostIsRetired, OfferIsGone, GpuNotOnHost, FormNotAllowed, FormTooYoung, and the
            refusals of `divided`.
        """
        if offer_id in self.listed:
            return []
        if self.is_retired:
            raise HostIsRetired(host_id=str(self.host_id))
        if offer.offer_id not in self.listed:
            raise OfferIsGone(offer_id=str(offer.offer_id))
        cards = cards_of(offer)
        missing = [uuid for uuid in cards if uuid not in self.gpus]
        if missing:
            raise GpuNotOnHost(gpu_uuids=missing)
        gpus = in_pieces(form.division, [self.gpus[uuid] for uuid in cards])
        formed = reformed(offer, form, gpus, floor=floor, offer_id=offer_id, chosen=chosen, now=now)
        return [FormChosen(host_id=self.host_id, offer_id=offer.offer_id, offer=formed, at=now)]

    def models_of(self, offer: OfferPublished) -> set[str]:
        """Return the models that an offer puts on the market, in each of its forms.

        Raises: the refusals of `divided`, where the host's cards take a form no longer.
        """
        cards = [self.gpus[uuid] for uuid in cards_of(offer)]
        forms = () if offer.by_demand is None else offer.by_demand.forms
        in_forms = [in_pieces(form.division, cards) for form in forms]
        return {gpu.model for gpus in (offer.gpus, *in_forms) for gpu in gpus}

    def unlist(self, offer_id: OfferId, *, now: datetime) -> list[GpusUnlisted]:
        """Give the GPUs of an offer back, once."""
        if offer_id not in self.listed:
            return []
        return [GpusUnlisted(host_id=self.host_id, offer_id=offer_id, at=now)]

    def retire(self, *, now: datetime) -> list[HostRetired]:
        """Take the host off the market for good: always possible, and harmless when repeated."""
        return [] if self.is_retired else [HostRetired(host_id=self.host_id, at=now)]

    def _refuse_overlap(self, offer: OfferPublished, *, now: datetime) -> None:
        until = now + COMPARED_AHEAD
        wanted = windows_of(offer, since=now, until=until)
        for other in self.listed.values():
            shared = _in_both(offer.gpus, other.gpus)
            if not shared:
                continue
            overlap = first_overlap(wanted, windows_of(other, since=now, until=until))
            if overlap is not None:
                raise GpuListedAlready(
                    gpu_uuids=sorted(shared), offer_id=str(other.offer_id), **_told(overlap[1])
                )


def _in_both(some: Sequence[Gpu], others: Sequence[Gpu]) -> set[str]:
    """Return the GPUs of some that cannot be offered beside the others.

    Those that are there too, and cards that are there in another form: whole and in parts, or as
    shares twice. MIG instances of one card that its owner made are beside each other.
    """
    known = {gpu.uuid for gpu in others}
    cards = {gpu.card_uuid for gpu in others}
    shared = {gpu.card_uuid for gpu in others if read_share(gpu.uuid) is not None}
    return {
        gpu.uuid
        for gpu in some
        if gpu.uuid in known
        or gpu.uuid in cards
        or gpu.card_uuid in known
        or (
            gpu.card_uuid is not None
            and gpu.card_uuid in (shared if read_share(gpu.uuid) is None else cards)
        )
    }


def _told(window: Window) -> dict[str, datetime]:
    return {"starts_at": window.starts_at, "ends_at": window.ends_at}
