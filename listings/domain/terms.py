"""What an owner says when putting GPUs on the market, and the bounds of each term."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ledger.domain.ids import BidId, OfferId
from ledger.domain.money import NANOS_PER_UNIT, CurrencyUnknown, Rate
from ledger.domain.refusal import Invalid, Refusal
from ledger.domain.span import Window
from listings.domain.divisions import MigModeOn, card_of, check_division, divide, pieces
from listings.domain.events import (
    ByDemand,
    Division,
    Gpu,
    HostRegistered,
    Isolation,
    OfferPublished,
    ReclaimStep,
    WeeklyRule,
)
from listings.domain.forms import FormsUnfit, check_by_demand, floor_of
from listings.domain.gpus import (
    GPUS_PER_HOST_MAX,
    GpuNamedTwice,
    IsolationUnfit,
    TooManyGpus,
    check_isolation,
)
from listings.domain.recurrence import check_rule
from listings.domain.windows import check_windows

FLOOR_MAX_NANOS = 10_000 * NANOS_PER_UNIT
LEASE_MIN_SECONDS_MAX = 30 * 86_400
NOTICE_SECONDS_MAX = 7 * 86_400
GRACE_SECONDS = 15
"""Of who says nothing; less, where the notice is shorter."""
GRACE_SECONDS_MAX = 15 * 60
RECLAIM_NOTICE_SECONDS_MAX = 30 * 86_400
RECLAIM_STEPS_MAX = 8
PPM = 1_000_000
CLEANING_SECONDS_MAX = 6 * 3_600
LABELS_MAX = 32
WORKLOAD_KINDS_MAX = 16
TITLE_MAX = 120

_NAME = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
_CURRENCY = re.compile(r"[A-Z]{3}")


class FloorOutOfBounds(Invalid):
    """A floor price lies between 0 and 10,000 per GPU-hour."""


class LeaseMinOutOfBounds(Invalid):
    """The minimum lease lies between one second and thirty days, and fits the longest window."""


class NoticeOutOfBounds(Invalid):
    """The notice of a reclaim lies between zero and seven days."""


class GraceOutOfBounds(Invalid):
    """The grace lies between zero and fifteen minutes, and within the notice of a reclaim.

    Work is killed at the deadline, whatever its grace: so it cannot be longer than the notice.
    """


class CleaningOutOfBounds(Invalid):
    """Between two leases a GPU is cleaned for six hours at most."""


class ReclaimFeeOutOfBounds(Invalid):
    """The reclaim fee lies between nothing and the whole value of the unused rest."""


class ReclaimStepsUnordered(Invalid):
    """Each step of a reclaim's fees has more notice and a lower fee than the one before.

    The first of all is `notice_seconds` with `reclaim_fee_ppm`; at most eight more, up to 30 days.
    """


class LabelsUnreadable(Invalid):
    """A label is a lower-case name and a text of up to 120 characters; at most 32 of them."""


class WorkloadKindsUnreadable(Invalid):
    """A workload kind is a short lower-case name; an offer allows at most sixteen by name."""


class NameUnreadable(Invalid):
    """A market or region is a lower-case name such as eu-west."""


class TitleUnreadable(Invalid):
    """A title is a printable text of 1 to 120 characters."""


class GpusMissing(Invalid):
    """An offer names at least one GPU."""


class OfferTermsDiffer(Refusal):
    """An offer with this id exists already, with other terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferTerms:
    """The terms an owner chooses; host, market and region follow from the GPUs' host.

    labels: on top of the host's; the same name replaces the host's. cleaning_seconds: that each GPU
    stays free after a lease, before the next. division: into which shares each GPU is divided;
    isolation None: that of the shares, or the whole GPU. by_demand: the forms among which the
    market chooses; it begins with the first of them. grace_seconds None: 15, or the notice if that
    is shorter.
    """

    gpu_uuids: tuple[str, ...]
    windows: tuple[Window, ...] = ()
    weekly: WeeklyRule | None = None
    floor: Rate
    lease_min_seconds: int = 900
    notice_seconds: int = 300
    grace_seconds: int | None = None
    reclaim_fee_ppm: int = 0
    reclaim_steps: tuple[ReclaimStep, ...] = ()
    workload_kinds: tuple[str, ...] = ()
    isolation: Isolation | None = None
    labels: tuple[tuple[str, str], ...] = ()
    reserved_for: BidId | None = None
    cleaning_seconds: int = 0
    division: Division | None = None
    by_demand: ByDemand | None = None


def check_terms(terms: OfferTerms, *, now: datetime) -> OfferTerms:
    """Return the terms in their normal form (everything in order), or refuse them.

    Raises: a refusal for each bound; see this module, `windows` and `recurrence`.
    """
    if not terms.gpu_uuids:
        raise GpusMissing()
    if len(terms.gpu_uuids) > GPUS_PER_HOST_MAX:
        raise TooManyGpus(gpus=len(terms.gpu_uuids), gpus_max=GPUS_PER_HOST_MAX)
    if len(set(terms.gpu_uuids)) != len(terms.gpu_uuids):
        raise GpuNamedTwice(gpu_uuids=list(terms.gpu_uuids))
    weekly = None if terms.weekly is None else check_rule(terms.weekly, now=now)
    windows = check_windows(terms.windows, weekly, now=now)
    terms = _begun(terms)
    check_floor(terms.floor)
    terms = check_promises(replace(terms, windows=windows, weekly=weekly))
    if not 0 <= terms.cleaning_seconds <= CLEANING_SECONDS_MAX:
        raise CleaningOutOfBounds(seconds_max=CLEANING_SECONDS_MAX)
    return replace(
        terms,
        gpu_uuids=tuple(sorted(terms.gpu_uuids)),
        labels=check_labels(terms.labels),
        division=check_division(terms.division),
    )


def check_promises(terms: OfferTerms) -> OfferTerms:
    """Return the terms with what a lease is granted on in its normal form, or refuse that.

    Shortest lease, notice, grace, fees and kinds of work: all that may change while it stands.

    Raises: LeaseMinOutOfBounds, NoticeOutOfBounds, GraceOutOfBounds, ReclaimFeeOutOfBounds,
        ReclaimStepsUnordered, WorkloadKindsUnreadable.
    """
    if not 1 <= terms.lease_min_seconds <= LEASE_MIN_SECONDS_MAX:
        raise LeaseMinOutOfBounds(seconds_min=1, seconds_max=LEASE_MIN_SECONDS_MAX)
    longest = max((window.millis // 1000 for window in terms.windows), default=0)
    if terms.weekly is None and terms.lease_min_seconds > longest:
        raise LeaseMinOutOfBounds(seconds_min=1, seconds_max=longest)
    if not 0 <= terms.notice_seconds <= NOTICE_SECONDS_MAX:
        raise NoticeOutOfBounds(seconds_max=NOTICE_SECONDS_MAX)
    grace = _grace_of(terms)
    if not 0 <= terms.reclaim_fee_ppm <= PPM:
        raise ReclaimFeeOutOfBounds(ppm_max=PPM)
    _check_steps(terms)
    return replace(terms, grace_seconds=grace, workload_kinds=check_kinds(terms.workload_kinds))


def _grace_of(terms: OfferTerms) -> int:
    """Return the grace in seconds. Raises: GraceOutOfBounds."""
    if terms.grace_seconds is None:
        return min(GRACE_SECONDS, terms.notice_seconds)
    most = min(GRACE_SECONDS_MAX, terms.notice_seconds)
    if not 0 <= terms.grace_seconds <= most:
        raise GraceOutOfBounds(seconds_max=most)
    return terms.grace_seconds


def _begun(terms: OfferTerms) -> OfferTerms:
    """Return terms by demand with those of their first form."""
    if terms.by_demand is None:
        return terms
    by_demand = check_by_demand(terms.by_demand, terms.floor)
    for form in by_demand.forms:
        check_floor(floor_of(form))
    first = by_demand.forms[0]
    begun = replace(terms, by_demand=by_demand, division=first.division, floor=floor_of(first))
    # Said again, with what follows from the first form, they are the same terms.
    if terms.isolation is not None or terms.division not in (None, begun.division):
        raise FormsUnfit(reason="its forms say how it is divided")
    return begun


def publication(
    offer_id: OfferId,
    terms: OfferTerms,
    *,
    host: HostRegistered,
    gpus: Sequence[Gpu],
    now: datetime,
) -> OfferPublished:
    """Return the fact of publishing these (checked) terms for these GPUs of `host`.

    gpus: as `divided` returns them.
    Raises: IsolationUnfit.
    """
    division = terms.division
    isolation = terms.isolation or ("whole" if division is None else division.kind)
    check_isolation(gpus, isolation, division)
    return OfferPublished(
        offer_id=offer_id,
        tenant_id=host.tenant_id,
        host_id=host.host_id,
        market=host.market,
        region=host.region,
        labels=tuple(sorted((dict(host.labels) | dict(terms.labels)).items())),
        gpus=tuple(gpus),
        windows=terms.windows,
        weekly=terms.weekly,
        floor=terms.floor,
        lease_min_seconds=terms.lease_min_seconds,
        notice_seconds=terms.notice_seconds,
        grace_seconds=_grace_of(terms),
        reclaim_fee_ppm=terms.reclaim_fee_ppm,
        reclaim_steps=terms.reclaim_steps,
        workload_kinds=terms.workload_kinds,
        isolation=isolation,
        source=host.source,
        reserved_for=terms.reserved_for,
        cleaning_seconds=terms.cleaning_seconds,
        division=division,
        by_demand=terms.by_demand,
        at=now,
    )


def leased_gpus(terms: OfferTerms) -> int:
    """Return how many GPUs the terms put on the market: shares count one each."""
    return len(terms.gpu_uuids) * (1 if terms.division is None else pieces(terms.division))


def divided(terms: OfferTerms, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return what is leased of some cards: the cards, or their shares.

    Raises: SharesUnfit, MigLayoutImpossible, MigModeOn, IsolationUnfit, TooManyGpus.
    """
    if terms.division is None and terms.isolation in ("mps", "timeslice"):
        raise IsolationUnfit(gpu_uuid=gpus[0].uuid, isolation=terms.isolation)
    return in_pieces(terms.division, gpus)


def in_pieces(division: Division | None, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return some cards as they are, or divided.

    Raises: SharesUnfit, MigLayoutImpossible, MigModeOn, TooManyGpus.
    """
    if division is None:
        for gpu in gpus:
            if gpu.mig_enabled and not gpu.mig_profiles:
                raise MigModeOn(gpu_uuid=gpu.uuid)
        return gpus
    shares = [share for gpu in gpus for share in divide(gpu, division)]
    if len(shares) > GPUS_PER_HOST_MAX:
        raise TooManyGpus(gpus=len(shares), gpus_max=GPUS_PER_HOST_MAX)
    return shares


def same_terms(one: OfferPublished, other: OfferPublished) -> bool:
    """Test if two publications say the same, whenever said.

    What the agent reported of the GPUs in between (a new driver) is no term of the owner's.
    """

    def said(offer: OfferPublished) -> tuple[object, ...]:
        return (replace(offer, at=one.at, gpus=()), cards_of(offer))

    return said(one) == said(other)


def as_before(offer: OfferPublished, terms: OfferTerms, before: OfferPublished) -> OfferPublished:
    """Return an offer said once more, with what its owner left out as it was the first time.

    Offers that are older than the grace as a term have 15 seconds also at a shorter notice.
    """
    if terms.grace_seconds is None:
        return replace(offer, grace_seconds=before.grace_seconds)
    return offer


def cards_of(offer: OfferPublished) -> tuple[str, ...]:
    """Return the GPUs that an owner named: of shares the cards, each once, in order."""
    return tuple(dict.fromkeys(card_of(gpu.uuid) for gpu in offer.gpus))


def _check_steps(terms: OfferTerms) -> None:
    """Refuse steps by which more notice would not cost less. Raises: ReclaimStepsUnordered."""
    last = ReclaimStep(terms.notice_seconds, terms.reclaim_fee_ppm)
    too_many = len(terms.reclaim_steps) > RECLAIM_STEPS_MAX
    for step in terms.reclaim_steps:
        longer = last.notice_seconds < step.notice_seconds <= RECLAIM_NOTICE_SECONDS_MAX
        if too_many or not longer or not 0 <= step.fee_ppm < last.fee_ppm:
            raise ReclaimStepsUnordered(
                notice_seconds=step.notice_seconds,
                fee_ppm=step.fee_ppm,
                steps_max=RECLAIM_STEPS_MAX,
            )
        last = step


def check_floor(floor: Rate) -> None:
    """Refuse a floor price outside its bounds.

    Raises: FloorOutOfBounds, CurrencyUnknown.
    """
    if not 0 <= floor.nanos_per_gpu_hour <= FLOOR_MAX_NANOS:
        raise FloorOutOfBounds(floor_max="10000.00")
    if not _CURRENCY.fullmatch(floor.currency):
        raise CurrencyUnknown(currency=floor.currency[:16])


def check_labels(labels: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the labels by name, or refuse them. Raises: LabelsUnreadable."""
    if len(labels) > LABELS_MAX or len(dict(labels)) != len(labels):
        raise LabelsUnreadable(labels_max=LABELS_MAX)
    for name, value in labels:
        if not _NAME.fullmatch(name) or not _is_title(value):
            raise LabelsUnreadable(label=name[:TITLE_MAX])
    return tuple(sorted(labels))


def check_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the workload kinds in order, each once. Raises: WorkloadKindsUnreadable."""
    checked = tuple(sorted(set(kinds)))
    if len(checked) > WORKLOAD_KINDS_MAX or not all(map(_NAME.fullmatch, checked)):
        raise WorkloadKindsUnreadable(kinds_max=WORKLOAD_KINDS_MAX)
    return checked


def check_name(name: str) -> str:
    """Return a market's or region's name, or refuse it. Raises: NameUnreadable."""
    if not _NAME.fullmatch(name):
        raise NameUnreadable(given=name[:TITLE_MAX])
    return name


def check_title(title: str) -> str:
    """Return a title without space around it, or refuse it. Raises: TitleUnreadable."""
    if not _is_title(title.strip()):
        raise TitleUnreadable(given=title[:TITLE_MAX])
    return title.strip()


def _is_title(text: str) -> bool:
    return 0 < len(text) <= TITLE_MAX and text.isprintable()
