"""How a lease kept what its owners promised, and what is credited where one did not.

Of each host by itself: who kept the promise pays nothing for another. Only what the owner answers
for counts. A start that waited for the consumer's files or image is not late; a lease that its
consumer, the market, money or an agreed reclaim ended was available to its end.

late = start of the work there − when its hosts were asked to start it: the begin of the lease, or
later where the market itself asked late, which no owner answers for. available = from the start to
when the right ended; agreed = from the start to the lease's end where the owner's fault ended it,
else the same. credit = charge of its GPUs × min(1, share for a late start + share of the lowest
step that available ÷ agreed is below), rounded down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, assert_never

from ledger.domain.ids import HostId, LeaseId
from listings.domain.sla import (
    NO_LEVEL,
    PPM,
    OfferSla,
    ServiceLevel,
    credit_ppm,
)
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    FilesAwaited,
    LeaseClosed,
    LeaseEvent,
    LeaseScheduled,
    ReclaimRequested,
    WorkStarted,
)
from marketplace.domain.facts.instants import ONE_SECOND
from marketplace.domain.facts.sla_events import (
    SlaAgreed,
    SlaEvent,
    SlaMeasured,
    SlaPart,
    SlaResult,
)
from marketplace.domain.leases.lease import Lease

OWNERS_FAULT = close_reasons.HARDWARE | {
    close_reasons.HOST_SILENT,
    close_reasons.WORK_LOST,
    close_reasons.GPU_OCCUPIED,
    close_reasons.NEVER_STARTED,
    close_reasons.HOST_FALLS_SHORT,
}
"""Of one host of the lease, where it is known which. A reclaim without notice counts as well; one
with the notice that was agreed is an owner's right, and has its own compensation."""


@dataclass(frozen=True, slots=True)
class LeaseSla:
    """What was promised to a lease, and what came of it."""

    STREAM: ClassVar[str] = "lease-sla"

    agreed: SlaAgreed
    measured: SlaMeasured | None = None

    @classmethod
    def evolve(cls, state: LeaseSla | None, event: SlaEvent, /) -> LeaseSla:
        """Return it after `event`."""
        match event:
            case SlaAgreed():
                return cls(event)
            case SlaMeasured():
                assert state is not None
                return cls(state.agreed, event)
            case _:
                assert_never(event)


def agree(
    scheduled: LeaseScheduled,
    promised: Iterable[tuple[str, OfferSla | None]],
    *,
    wanted: ServiceLevel = NO_LEVEL,
) -> list[SlaAgreed]:
    """Return what a lease was granted on; nothing where none of its owners promises anything.

    GPUs of the consumer's own, and the rest of another's lease, come without a promise.

    Args:
        promised: by the id of the offer, as text. wanted: what the bid asked for.
    """
    if scheduled.own:
        return []
    known = dict(promised)
    parts = []
    for share in scheduled.shares:
        sla = known.get(str(share.offer_id))
        terms = None if sla is None or share.resold is not None else sla.at(scheduled.at, wanted)
        if terms is not None:
            parts.append(
                SlaPart(
                    owner_id=share.owner_id,
                    offer_id=share.offer_id,
                    host_id=share.host_id,
                    gpus=len(share.gpu_uuids),
                    terms=terms,
                )
            )
    if not parts:
        return []
    return [SlaAgreed(lease_id=scheduled.lease_id, parts=tuple(parts), at=scheduled.at)]


def measure(
    sla: LeaseSla | None, lease: Lease, events: Sequence[LeaseEvent], *, now: datetime
) -> list[SlaMeasured]:
    """Return how a lease that is over kept its promises; once.

    Args:
        events: all of the lease's own, in order.
    """
    if sla is None or sla.measured is not None or not lease.over:
        return []
    results = tuple(_result(part, lease, events) for part in sla.agreed.parts)
    return [SlaMeasured(lease_id=LeaseId(lease.terms.lease_id), results=results, at=now)]


def _result(part: SlaPart, lease: Lease, events: Sequence[LeaseEvent]) -> SlaResult:
    begin, right_ended = lease.starts_at, lease.right_ends_at
    started = next((e.at for e in events if isinstance(e, WorkStarted) and _of(e, part)), None)
    waited = any(isinstance(e, FilesAwaited) and _of(e, part) for e in events)
    asked = max(begin, lease.starting_at or begin)
    fault = _at_fault(part.host_id, lease, events)
    ran_from = max(begin, started or right_ended)
    agreed_to = lease.ends_at if fault else max(ran_from, right_ended)
    available = max(timedelta(), right_ended - ran_from)
    agreed = max(timedelta(), agreed_to - ran_from)
    late = 0 if started is None else max(0, (started - asked) // ONE_SECOND)
    missed_start = started is None and fault
    counted = 0 if waited else None if missed_start else late
    return SlaResult(
        owner_id=part.owner_id,
        host_id=part.host_id,
        gpus=part.gpus,
        late_seconds=None if started is None or waited else late,
        available_seconds=available // ONE_SECOND,
        agreed_seconds=agreed // ONE_SECOND,
        credit_ppm=credit_ppm(
            part.terms, late_seconds=counted, available_ppm=_ppm(available, agreed)
        ),
    )


def _of(event: WorkStarted | FilesAwaited, part: SlaPart) -> bool:
    return event.host_id == part.host_id


def _ppm(part: timedelta, whole: timedelta) -> int:
    return PPM if not whole else part * PPM // whole


def _at_fault(host_id: HostId, lease: Lease, events: Sequence[LeaseEvent]) -> bool:
    """Tell if the lease ended before its time by a fault of this host's owner."""
    closed = next((e for e in events if isinstance(e, LeaseClosed)), None)
    if closed is None:
        return False
    if closed.reason == close_reasons.RECLAIMED:
        owner_id = next(s.owner_id for s in lease.terms.shares if s.host_id == host_id)
        reclaims = [e for e in events if isinstance(e, ReclaimRequested)]
        last = reclaims[-1] if reclaims else None
        at_once = last is not None and last.stop_at <= last.at and not last.rented
        return at_once and last is not None and last.owner_id == owner_id
    if closed.reason not in OWNERS_FAULT:
        return False
    if closed.reason == close_reasons.NEVER_STARTED:
        return host_id not in lease.started
    whose = closed.of_host or lease.broke_on
    return whose in (None, host_id)


def reason_of(result: SlaResult) -> str:
    """Return the figures of a miss in words, as the entry bears them."""
    late = f"started {result.late_seconds} s after it was due"
    if result.late_seconds is None:  # it never ran, or waited for the consumer's files
        late = "start not counted" if result.available_seconds else "never started"
    return f"{late}, available {result.available_seconds} of {result.agreed_seconds} s"
