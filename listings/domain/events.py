"""Every fact of the supply side, in the order a reader meets them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import BidId, EnrolmentId, HostId, OfferId, TenantId, TokenId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from listings.domain.maintenance_events import MaintenanceEvent

Isolation = Literal["whole", "mig", "mps", "timeslice", "cooperative"]
OfferSource = Literal["local", "burst"]
Taking = Literal["all", "paused", "draining", "released"]
"""What an owner lets the market do on a host: anything; start nothing new; have what runs end with
its notice; have nothing there at all."""
ShareKind = Literal["mps", "timeslice", "mig"]
UnfitReason = Literal[
    "gpu-lost",
    "driver-mismatch",
    "xid",
    "card-filled",
    "absent",
    "cannot-start",
    "starts-failed",
    "memory-fault",
    "diagnostic-failed",
]
"""Why a GPU is not leased for now: it does not answer; the driver was changed under its users; an
XID error that takes a reset; others fill its memory; its host does not find it any more, or can
start no work; starts on it failed; its memory has errors; it computed or kept something wrongly."""

GpuNote = Literal["diagnostic-passed", "diagnostic-failed", "slowed", "steady"]
"""A diagnostic passed or failed; heat or power hold a GPU's clocks down, or no more."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its host's agent reported it.

    uuid: NVML's, the key everywhere. nvlink_group: GPUs with the same one are joined by NVLink.
    mig_enabled without mig_profiles: a card in MIG mode that has no instances yet.
    card_uuid: of a part of a card (a MIG instance, a share), the card, where it is known.
    compute_percent: of a share by MPS or time slices, its part of the card's compute; else None.
    """

    uuid: str
    model: str
    memory_mib: int
    compute_capability: str
    driver: str
    nvlink_group: str | None = None
    mig_enabled: bool = False
    mig_profiles: tuple[str, ...] = ()
    card_uuid: str | None = None
    compute_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One share of a card. compute_percent: by MPS; None by time slices, which are equal."""

    memory_mib: int
    compute_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """How an owner divides each card of an offer (listings/domain/divisions.py).

    count: so many shares of equal size; or parts: one by one. profiles: by MIG, the instances.
    """

    kind: ShareKind
    count: int = 0
    parts: tuple[Part, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """One way to list a card: whole, or divided. floor: per hour of what is leased then."""

    division: Division | None = None
    floor: Rate | None = None


@dataclass(frozen=True, slots=True)
class ByDemand:
    """The forms among which the market chooses, and how long an offer stays in one at least."""

    forms: tuple[Form, ...]
    form_min_seconds: int = 3_600


@dataclass(frozen=True, slots=True)
class Chosen:
    """Why an offer is in its form: what bids that waited would have paid in it, and in the old one.

    instead_of: the offer whose place it takes. bids, bids_before: how many would have been served.
    """

    instead_of: OfferId
    worth: Money
    worth_before: Money
    bids: int
    bids_before: int


@dataclass(frozen=True, slots=True)
class WeeklyRule:
    """A window that comes back every week, on the clock of an IANA zone.

    days: 0 is Monday. A window whose `until` is not after `since` ends on the next day.
    first, last: calendar dates in the zone; `last` is included, None: until withdrawn.
    Times that a clock change skips are moved forward by the gap; of times that come twice the
    first is meant (listings/domain/recurrence.py).
    """

    zone: str
    days: tuple[int, ...]
    since: time
    until: time
    first: date
    last: date | None = None


@dataclass(frozen=True, slots=True)
class ReclaimStep:
    """With at least this much notice, a reclaim pays this share of the value of the unused rest."""

    notice_seconds: int
    fee_ppm: int


# --- hosts: streams host-<host_id> -------------------------------------------------------------


class HostRegistered(Event, name="listings.host-registered"):
    """An owner made a GPU host known. Its agent reports the GPUs."""

    host_id: HostId
    tenant_id: TenantId
    title: str
    market: str
    region: str
    labels: tuple[tuple[str, str], ...]
    source: OfferSource
    at: datetime


class InventoryReported(Event, name="listings.inventory-reported", version=2, grown_from=1):
    """The host's agent found these GPUs; recorded only when they differ from before."""

    host_id: HostId
    gpus: tuple[Gpu, ...]
    at: datetime


class HostAbilitiesReported(Event, name="listings.host-abilities-reported"):
    """The host's agent said how it keeps work apart, and what work may ask of it.

    Recorded only when it differs from before. sandbox: a level of `listings.domain.sandboxes`;
    empty: not said. enforces: what is kept from work, and what keeps it (empty: nothing does).
    """

    host_id: HostId
    sandbox: str
    enforces: tuple[tuple[str, str], ...]
    abilities: tuple[str, ...]
    at: datetime


class HostFellSilent(Event, name="listings.host-fell-silent"):
    """Nothing was heard of the host's agent for too long: nothing of the host is leased for now.

    heard_at: when the server last heard the agent, on the server's clock.
    """

    host_id: HostId
    heard_at: datetime
    at: datetime


class HostReturned(Event, name="listings.host-returned"):
    """The agent was heard again for long enough: what is offered of the host is leased again."""

    host_id: HostId
    at: datetime


class HostTakingChanged(Event, name="listings.host-taking-changed"):
    """The owner turned one of the two switches of a host, each of which it stands on from now on.

    at_host: the switch at the host, as its agent tells it. on_market: the one here. Nothing of the
    host is leased but while both say `all`.
    """

    host_id: HostId
    at_host: Taking
    on_market: Taking
    at: datetime


class GpuQuarantined(Event, name="listings.gpu-quarantined", version=2, grown_from=1):
    """A GPU has a fault: neither it nor any part of it is leased for now.

    gpu_uuid: of a card, or of a MIG instance that its owner made. detail: in the agent's words.
    relapses: how often in a row it had been released not long before.
    """

    host_id: HostId
    gpu_uuid: str
    reason: UnfitReason
    detail: str
    at: datetime
    relapses: int = 0


class GpuReleased(Event, name="listings.gpu-released"):
    """The GPU was without fault for long enough: it is leased again."""

    host_id: HostId
    gpu_uuid: str
    at: datetime


class GpuNoted(Event, name="listings.gpu-noted"):
    """What is told of a GPU besides faults; by itself it withholds nothing.

    Recorded when it differs from what was told last, and of diagnostics that pass once a day.
    detail: in the agent's words.
    """

    host_id: HostId
    gpu_uuid: str
    note: GpuNote
    detail: str
    at: datetime


class HostRetired(Event, name="listings.host-retired"):
    """The host is gone for good; its offers are withdrawn."""

    host_id: HostId
    at: datetime


# --- enrolments: streams enrolment-<enrolment_id> -----------------------------------------------


class EnrolmentCodeMade(Event, name="listings.enrolment-code-made"):
    """An owner made a code by which a host's agent gets its token, once and until then.

    enrolment_id: what is kept of the code, a keyed hash.
    """

    enrolment_id: EnrolmentId
    tenant_id: TenantId
    host_id: HostId
    expires_at: datetime
    at: datetime


class HostEnrolled(Event, name="listings.host-enrolled"):
    """The code was exchanged for that token.

    hostname: what the machine that did calls itself.
    """

    enrolment_id: EnrolmentId
    host_id: HostId
    token_id: TokenId
    hostname: str
    at: datetime


# --- offers: streams offer-<offer_id> -----------------------------------------------------------


class OfferPublished(Event, name="listings.offer-published", version=7, grown_from=1):
    """An owner put GPUs of one host on the market for idle windows, at or above a floor.

    windows: one-off windows. weekly: a recurrence, or None. At least one of the two.
    notice_seconds: time between a reclaim and the loss of the capacity.
    reclaim_fee_ppm: share of the value of the unused rest of a lease that a reclaim pays back.
    reclaim_steps: what a reclaim with more notice pays; each step has more notice and less fee.
    grace_seconds: what work has between the signal to stop and the kill, within the notice.
    workload_kinds: what may run; empty: anything. reserved_for: only that bid may have it.
    cleaning_seconds: between the end of one lease and the start of the next on each GPU.
    division: how each card is divided into shares; then `gpus` are the shares.
    by_demand: the forms that its owner allows; chosen: why it is in this one, if it was in another.
    """

    offer_id: OfferId
    tenant_id: TenantId
    host_id: HostId
    market: str
    region: str
    labels: tuple[tuple[str, str], ...]
    gpus: tuple[Gpu, ...]
    windows: tuple[Window, ...]
    weekly: WeeklyRule | None
    floor: Rate
    lease_min_seconds: int
    notice_seconds: int
    reclaim_fee_ppm: int
    workload_kinds: tuple[str, ...]
    isolation: Isolation
    source: OfferSource
    reserved_for: BidId | None
    at: datetime
    reclaim_steps: tuple[ReclaimStep, ...] = ()
    cleaning_seconds: int = 0
    division: Division | None = None
    by_demand: ByDemand | None = None
    chosen: Chosen | None = None
    grace_seconds: int = 15


class OfferRepriced(Event, name="listings.offer-repriced"):
    """The owner changed the floor. Leases granted before keep their price."""

    offer_id: OfferId
    floor: Rate
    at: datetime


class OfferTermsChanged(Event, name="listings.offer-terms-changed"):
    """The owner changed what it promises those who lease. Leases granted before keep their terms.

    All of them as they are from now on, also those that stayed; fields as of `OfferPublished`.
    """

    offer_id: OfferId
    lease_min_seconds: int
    notice_seconds: int
    grace_seconds: int
    reclaim_fee_ppm: int
    reclaim_steps: tuple[ReclaimStep, ...]
    workload_kinds: tuple[str, ...]
    at: datetime


class OfferPaused(Event, name="listings.offer-paused"):
    """The owner stopped new leases for now."""

    offer_id: OfferId
    at: datetime


class OfferResumed(Event, name="listings.offer-resumed"):
    """The owner takes new leases again."""

    offer_id: OfferId
    at: datetime


class OfferWithdrawn(Event, name="listings.offer-withdrawn"):
    """The owner took the offer off the market for good.

    Leases granted before run on to their end, unless the owner reclaims them too.
    """

    offer_id: OfferId
    at: datetime


class OfferExpired(Event, name="listings.offer-expired"):
    """The last window of the offer is over."""

    offer_id: OfferId
    at: datetime


class GpusListed(Event, name="listings.gpus-listed", version=7, grown_from=1):
    """The host gave GPUs to an offer for its windows, and no other offer had them then.

    On the host's stream, where two offers of one GPU cannot both pass; the offer's own stream
    starts with `offer` because of this.
    """

    host_id: HostId
    offer: OfferPublished
    at: datetime


class GpusUnlisted(Event, name="listings.gpus-unlisted"):
    """The offer is over, so its GPUs may be listed in another. On the host's stream."""

    host_id: HostId
    offer_id: OfferId
    at: datetime


class FormChosen(Event, name="listings.form-chosen", version=2, grown_from=1):
    """An idle offer took another form by demand: a new offer is in its place on its GPUs.

    On the host's stream; the old offer is withdrawn and the new one's stream starts because of it.
    """

    host_id: HostId
    offer_id: OfferId
    offer: OfferPublished
    at: datetime


HostEvent = (
    HostRegistered
    | InventoryReported
    | HostAbilitiesReported
    | HostFellSilent
    | HostReturned
    | HostTakingChanged
    | GpuQuarantined
    | GpuReleased
    | GpuNoted
    | GpusListed
    | GpusUnlisted
    | FormChosen
    | HostRetired
    | MaintenanceEvent
)
EnrolmentEvent = EnrolmentCodeMade | HostEnrolled
OfferEvent = (
    OfferPublished
    | OfferRepriced
    | OfferTermsChanged
    | OfferPaused
    | OfferResumed
    | OfferWithdrawn
    | OfferExpired
)
