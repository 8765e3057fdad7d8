"""What the facts of the market are made of: wishes, shares, reasons, proofs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from ledger.domain.ids import BidId, FolderId, HostId, LeaseId, OfferId, TenantId
from ledger.domain.making import made_quickly
from ledger.domain.money import Money, Rate
from listings.domain.events import ReclaimStep
from listings.domain.sla import ServiceLevel

ServiceClass = Literal["on-demand", "reserved", "interruptible"]
Placement = Literal["same-host", "any-hosts"]
GoodTill = Literal["good-till-deadline", "good-till-moment", "immediate-or-cancel", "fill-or-kill"]
"""How long a bid waits: as long as it can be met; up to a moment; not at all, taking as much of
its ranges as there is; not at all, taking all of it or nothing."""
ExpiryReason = Literal["deadline", "good-till", "not-at-once", "not-covered"]
Seeks = Literal["cheapest", "soonest"]
"""Of the places within its limit a bid takes the cheapest, and of these the soonest start; or the
soonest start, and of these the cheapest."""
Patience = Literal["immediate", "patient"]
"""immediate: cleared at once against what is listed, the rest waits for what is listed next.
patient: cleared in rounds."""


Counts = Literal["whole", "parts"]
"""How quotas count a MIG instance or a share. whole: each as one GPU. parts: as the part of its
card that it is."""
TAKES_SHARES = ("mps", "timeslice", "cooperative")
"""Isolation levels by which a bid takes shares of GPUs. Without a level it takes those whose model
it names, with their size."""

ReclaimTerm = Literal["notice", "reclaim", "grace"]
"""What an owner promises for a reclaim: its notice, its fee, the grace to stop; as bids ask it."""


class Reclaimed(Protocol):
    """What says on which terms capacity is taken back."""

    @property
    def notice_seconds(self) -> int:
        """Return the least notice."""

    @property
    def reclaim_fee_ppm(self) -> int:
        """Return what is paid of the lost rest at that notice."""

    @property
    def grace_seconds(self) -> int:
        """Return what work has between the signal to stop and the kill, within the notice."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What a GPU must be to serve a bid. Empty and None ask for nothing; unset is not zero.

    other_regions: these will do as well as `region`. not_models, not_regions, not_labels: none of
    these, nor a kind or a part of them. nvlink_min: GPUs that NVLink joins on the host, at least;
    with nvlink. hosts: only on one of these; not_hosts: on none of these. own: only GPUs of the
    bidder's own organisation. compute_percent_min: of its card's compute, which shares and MIG
    instances have in part. prefer: what a gang's GPUs had best have in common, the most wanted
    first (`query_language.PREFERENCE`): it leaves nothing out. reliability_min_ppm: only hosts that
    proved so reliable. notice_seconds_min, reclaim_fee_ppm_min: only owners who promise so much
    for a reclaim: notice at least, and at that notice what part of the lost rest they pay.
    grace_seconds_min: and who give work so long between the signal to stop and the kill.
    sandbox_min: only hosts whose agent keeps work apart at this level at least
    (`listings.domain.sandboxes`). network: only hosts from which work reaches public addresses
    (open), or nothing at all (none). start_seconds_max, availability_min_ppm: only offers whose
    owners promise a start within so many seconds, and so much availability.
    """

    models: tuple[str, ...] = ()
    memory_mib_min: int | None = None
    compute_capability_min: str | None = None
    nvlink: bool = False
    region: str | None = None
    isolation: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    driver_min: str | None = None
    nvlink_min: int | None = None
    hosts: tuple[HostId, ...] = ()
    not_hosts: tuple[HostId, ...] = ()
    own: bool = False
    prefer: tuple[str, ...] = ()
    reliability_min_ppm: int | None = None
    compute_percent_min: int | None = None
    other_regions: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    not_regions: tuple[str, ...] = ()
    not_labels: tuple[tuple[str, str], ...] = ()
    notice_seconds_min: int | None = None
    reclaim_fee_ppm_min: int | None = None
    grace_seconds_min: int | None = None
    sandbox_min: str | None = None
    network: str | None = None
    start_seconds_max: int | None = None
    availability_min_ppm: int | None = None

    def lacks(self, offer: Reclaimed) -> ReclaimTerm | None:
        """Return what an owner promises too little of for a reclaim, the first; None: nothing."""
        if offer.notice_seconds < (self.notice_seconds_min or 0):
            return "notice"
        if offer.reclaim_fee_ppm < (self.reclaim_fee_ppm_min or 0):
            return "reclaim"
        return "grace" if offer.grace_seconds < (self.grace_seconds_min or 0) else None

    @property
    def level(self) -> ServiceLevel:
        """Return the level of service that is asked for."""
        return ServiceLevel(self.start_seconds_max, self.availability_min_ppm)

    @property
    def regions(self) -> tuple[str, ...]:
        """Return the regions of which any will do; none: all."""
        return () if self.region is None else (self.region, *self.other_regions)


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume that work finds at `path`, beneath where it starts; writable: what it changes there
    becomes the volume's next version.
    """

    name: str
    path: str
    writable: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """What will run: kind, and how the host's agent starts it.

    checkpoint_seconds: started anew, it goes on from where it was but for so many seconds at most,
    without reporting checkpoints; None: only what is reported counts.
    image: the container image it runs in, by its digest; empty: it is a process of the host.
    inputs: the folder whose files it finds where it starts; None: none. outputs: what of its folder
    is kept when it ended, as in `marketplace/domain/files/outputs.py`; empty: nothing.
    secrets: names of those it finds as files; secret_variables: those of them that are variables
    of its environment as well. Never a value. volumes: what it finds of its organisation's.
    end_when_idle_seconds: idle for so long, its leases are given back; None: by no rule of its own.
    fetch: what its host fetches where it starts (`marketplace/domain/bids/sources.py`); empty:
    nothing. fetch_secret: the name of the secret that is shown there; empty: none.
    project: the label by which spending is told apart and budgets count it; empty: none.
    """

    kind: str
    runtime: Literal["process"] = "process"
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    checkpoint_seconds: int | None = None
    image: str = ""
    inputs: FolderId | None = None
    outputs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    secret_variables: tuple[str, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    end_when_idle_seconds: int | None = None
    fetch: str = ""
    fetch_secret: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class KeptOff:
    """A host on which work failed: what goes on from it does not begin there before `until`."""

    host_id: HostId
    until: datetime


@dataclass(frozen=True, slots=True)
class Continues:
    """What a bid goes on from that the market placed itself, on the terms of another.

    bid_id: the one before; first_id: the one the chain began with; number: the place in the
    chain, from 2 on. lease_id: the lease before it; None: that bid got none. resumes: it asks
    for the rest of that lease's time; else for all of it anew. keeps_off: hosts that may be as
    good as before in a moment, and are not asked again until then. moves: that lease still runs,
    and gives way to this bid's lease where it gets one.
    done_seconds: what of the time that was asked for at first is done and safe; pauses: how often
    the work was paused until now; paused: it was just now. Of a bid that resumes.
    """

    first_id: BidId
    bid_id: BidId
    number: int
    lease_id: LeaseId | None
    resumes: bool
    keeps_off: tuple[KeptOff, ...] = ()
    done_seconds: int = 0
    pauses: int = 0
    paused: bool = False
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Resold:
    """The holder of a lease sold these GPUs on: whose that lease was, and what it paid for them.

    Of what is paid for their use, the owner gets what `price` per GPU-hour is of the lease's
    price, and `tenant_id` the rest; a reclaim is compensated by the value at `price`.
    """

    lease_id: LeaseId
    tenant_id: TenantId
    price: Rate


@made_quickly
@dataclass(frozen=True, slots=True)
class Share:
    """The part of a grant that one offer gives. resold: None, if its owner gives it directly.

    grace_seconds: what the offer's owner promised; the lease's own is `state.grace_of`.
    """

    offer_id: OfferId
    host_id: HostId
    owner_id: TenantId
    gpu_uuids: tuple[str, ...]
    notice_seconds: int
    reclaim_fee_ppm: int
    source: Literal["local", "burst"]
    reclaim_steps: tuple[ReclaimStep, ...] = ()
    resold: Resold | None = None
    grace_seconds: int = 15


GrantRefusal = Literal[
    "bid-over", "bid-changed", "bid-unfunded", "lease-changed", "supply-changed", "too-late"
]
"""What had changed between the engine's decision and the moment its grant was to become a lease."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A lease ends at `ends_at`, sooner than it would have, in favour of the one granted."""

    lease_id: LeaseId
    ends_at: datetime
    because: Literal["resold", "interrupted", "paused"]


@made_quickly
@dataclass(frozen=True, slots=True)
class Unmatched:
    """Why a bid got nothing in a round: the first constraint that left too few GPUs."""

    bid_id: BidId
    reason: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a round proves of itself; an independent verifier checked it before the append.

    welfare: what the grants are worth, the sum of (limit − floor) × GPU-time, in nano-units.
    weight: what they counted more when bids were compared, for having waited; never paid.
    bound: no other clearing of the round with its starts on the same grid comes to more welfare
    and weight together.
    seed, iterations (steps of each stage): with the rule they give the same clearing again.
    slots, pools: the size of the problem: spans of time, and groups of GPUs that are alike.
    price_mean: per GPU-hour, each grant weighing as much as its GPU-time.
    capped: grants that pay their own limit, the round's price being higher.
    paradoxical: bids refused although their limit was above the round's price; and what they
    would have gained at that price, in nano-units.
    aside: bids that were left out, because a round with them breaks off.
    """

    welfare_nanos: int
    bound_nanos: int
    seed: int
    iterations: tuple[tuple[str, int], ...]
    slots: int
    pools: int
    price_mean: int
    capped: int
    paradoxical: int
    paradoxical_nanos: int
    weight_nanos: int = 0
    aside: tuple[BidId, ...] = ()


@dataclass(frozen=True, slots=True)
class Posed:
    """The book on which the problem of a round was posed.

    version: of the last decision in it, in the market's stream. through: as in RoundCleared.
    """

    version: int
    through: int


@dataclass(frozen=True, slots=True)
class Compensation:
    """What one owner pays the consumer of a lease for taking capacity back."""

    owner_id: TenantId
    money: Money


PPM = 1_000_000
DUST_NANOS = 10_000
"""A thousandth of a cent. Bounds are rounded up for each bid and grants down: less than this is
what rounding left, and a ratio of it says nothing."""


def gap_ppm(*, worth_nanos: int, bound_nanos: int) -> int | None:
    """Return the gap to the bound in parts per million of the bound, rounded up.

    Args:
        worth_nanos: what the grants are worth, with what waiting counted for.

    Returns:
        None where the bound is no more than what rounding left, as in a round in which nothing
        could have been granted.
    """
    if bound_nanos <= DUST_NANOS:
        return None
    return -(-max(0, bound_nanos - worth_nanos) * PPM // bound_nanos)
