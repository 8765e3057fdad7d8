"""A lease's own events, and what its work left, as sentences for its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from config.site.parts.figures import amount_text, count_text, local, size_text
from ledger.domain.event import Event
from ledger.eventstore.port import Recorded
from marketplace.domain.clearing.extension import EXTENSION_REASONS
from marketplace.domain.facts.close_reasons import FUNDS_BACK, FUNDS_TAKEN, REASONS
from marketplace.domain.facts.events import (
    CutWithdrawn,
    ExtensionRefused,
    ExtensionRequested,
    FilesAwaited,
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    LeaseExtended,
    LeaseHardwareFailed,
    LeaseHostLost,
    LeaseInterrupted,
    LeaseMoved,
    LeaseRepriced,
    LeaseScheduled,
    LeaseShortened,
    LeaseStarting,
    MaintenanceNoticed,
    MaintenanceNoticeWithdrawn,
    ReclaimRequested,
    ResaleEnded,
    ResaleListed,
    ResaleOpened,
    WorkSaved,
    WorkStarted,
    WorkStopped,
)
from marketplace.queries.folders import NOTHING_LEFT, Left


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the timeline."""

    at: datetime
    title: str
    detail: str = ""
    tone: Literal["", "good", "warn", "bad"] = ""


def steps_of(events: list[Recorded], left: Left = NOTHING_LEFT) -> list[Step]:
    """Return a step for each event of a lease and each folder it left, oldest first."""
    told = [step for recorded in events if (step := _step(recorded)) is not None]
    kept = [
        Step(
            each.kept_at,
            "Outputs kept",
            f"{count_text(each.files, 'file')}, {size_text(each.size_bytes)}.",
            "good",
        )
        for each in left.folders
    ]
    failed = [
        Step(each.at, "Outputs not kept", each.reason, "bad" if each.final else "warn")
        for each in left.failed
    ]
    return sorted([*told, *kept, *failed], key=lambda step: step.at)


def saved_at(events: list[Recorded]) -> list[datetime]:
    """Return when hosts reported checkpoints: too many to be steps."""
    return [
        recorded.event.at
        for recorded in events
        if isinstance(recorded.event, WorkSaved) and recorded.event.host_id is not None
    ]


def _step(recorded: Recorded) -> Step | None:
    match recorded.event:
        case LeaseScheduled() as event:
            gpus = sum(len(share.gpu_uuids) for share in event.shares)
            price = amount_text(event.price.nanos_per_gpu_hour, event.price.currency, exact=True)
            held = event.price.charge(event.window.millis * gpus)
            detail = f"{amount_text(held.nanos, held.currency)} held for all of it."
            return Step(event.at, f"Granted at {price} per GPU-hour", detail, "good")
        case LeaseStarting() as event:
            return Step(event.at, "Hosts asked to start the work")
        case WorkStarted() as event:
            return Step(event.at, "Work started on a host", tone="good")
        case LeaseActivated() as event:
            return Step(event.at, "Every host is running", tone="good")
        case WorkStopped() as event:
            code = event.exit_code
            said = f"Exit code {code}. " if code is not None else ""
            tone: Literal["", "bad"] = "bad" if code else ""
            return Step(event.at, "Work stopped on a host", f"{said}{event.detail}".strip(), tone)
        case ReclaimRequested() as event:
            return _taken_back(event)
        case ExtensionRequested() as event:
            return Step(event.at, "Extension asked for", f"Until {local(event.ends_at)}.")
        case ExtensionRefused() as event:
            return _not_extended(event)
        case LeaseExtended() as event:
            return Step(event.at, "Extended", f"Now until {local(event.ends_at)}.", "good")
        case LeaseRepriced() as event:
            before, price = (
                amount_text(each.nanos_per_gpu_hour, each.currency, exact=True)
                for each in (event.before, event.price)
            )
            detail = f"{price} per GPU-hour from {local(event.since)}; {before} until then."
            return Step(event.at, "Another price agreed by all sides", detail, "good")
        case LeaseEnding() as event:
            return Step(event.at, "Hosts asked to stop the work", REASONS.get(event.reason, ""))
        case LeaseClosed() as event:
            title = "Failed" if event.failed else "Closed"
            detail = REASONS.get(event.reason, f"Reason {event.reason}.")
            if event.compensation is not None:
                paid = amount_text(event.compensation.nanos, event.compensation.currency)
                detail += f" The owner pays {paid} for what was lost."
            return Step(event.at, title, detail, "bad" if event.failed else "")
        case claim:
            return _claim(claim)


def _not_extended(event: ExtensionRefused) -> Step:
    because = EXTENSION_REASONS.get(event.reason, event.reason)
    detail = f"Until {local(event.ends_at)}: {because}."
    if event.reason == FUNDS_TAKEN:
        return Step(event.at, "Its money is gone", detail, "warn")
    if event.reason == FUNDS_BACK:
        return Step(event.at, "Its money is there again", detail, "good")
    return Step(event.at, "It cannot extend automatically", detail, "warn")


def _taken_back(event: ReclaimRequested) -> Step:
    detail = f"The work has until {local(event.stop_at)}; then it is stopped."
    if event.compensation is not None and event.compensation.nanos:
        paid = amount_text(event.compensation.nanos, event.compensation.currency)
        detail += f" The owner pays {paid} for it."
    if event.rented:
        return Step(event.at, "The cloud takes the machine back", detail, "warn")
    why = "" if event.maintenance_id is None else " for maintenance"
    return Step(event.at, f"Owner takes the GPUs back{why}", detail, "warn")


def _claim(claim: Event) -> Step | None:
    """Tell what a start waits for, and what cuts a lease short besides its owner.

    Of checkpoints only those that the consumer noted: a work may report one every minute.
    """
    match claim:
        case FilesAwaited() as event:
            return Step(event.at, "A host fetches what the work needs")
        case WorkSaved(host_id=None) as event:
            return Step(event.at, "Checkpoint noted", f"Safe up to {local(event.safe_at)}.", "good")
        case MaintenanceNoticed() | MaintenanceNoticeWithdrawn() as event:
            return _maintenance(event)
        case ResaleListed() as event:
            floor = amount_text(event.floor.nanos_per_gpu_hour, event.floor.currency)
            detail = f"From {local(event.since)} on, for {floor} per GPU-h at least."
            return Step(event.at, "The rest is for sale", detail)
        case ResaleOpened() as event:
            return Step(event.at, "The rest is open to the market")
        case ResaleEnded() as event:
            return Step(event.at, "The rest is kept")
        case LeaseShortened() as event:
            return Step(event.at, "The rest is sold", f"It ends {local(event.ends_at)}.", "good")
        case LeaseHostLost() as event:
            detail = f"It was heard last at {local(event.heard_at)}."
            owed = event.compensation
            if owed.nanos:
                detail += f" Its owner pays {amount_text(owed.nanos, owed.currency)}."
            return Step(event.at, "The host is not heard any more", detail, "bad")
        case LeaseHardwareFailed() as event:
            return Step(event.at, "The hardware failed", _failure(event), "bad")
        case LeaseInterrupted() | LeaseMoved() as event:
            return _given_way(event)
        case CutWithdrawn() as event:
            return Step(event.at, "It keeps its GPUs", f"It ends {local(event.ends_at)}.", "good")
        case _:
            return None


def _given_way(event: LeaseInterrupted | LeaseMoved) -> Step:
    if isinstance(event, LeaseMoved):
        detail = f"A lease is secured from {local(event.stop_at)} on; the work saves itself."
        return Step(event.at, "The work moves home", detail, "good")
    if event.pausing:
        detail = f"It has until {local(event.stop_at)} to save itself, and goes on later."
        what = (
            "since a budget is reached"
            if event.in_favour_of == event.lease_id
            else "for other work"
        )
        return Step(event.at, f"The work is paused {what}", detail, "warn")
    detail = f"The work has until {local(event.stop_at)}; then it is stopped."
    return Step(event.at, "A firm bid takes the GPUs", detail, "warn")


def _maintenance(event: MaintenanceNoticed | MaintenanceNoticeWithdrawn) -> Step:
    if isinstance(event, MaintenanceNoticeWithdrawn):
        return Step(event.at, "The maintenance does not meet it any more", tone="good")
    detail = f"{local(event.starts_at)}: {event.reason}. The lease ends by then."
    return Step(event.at, "A host goes into maintenance", detail, "warn")


def _failure(event: LeaseHardwareFailed) -> str:
    where = f"{event.gpu_uuid}: {event.detail}. " if event.gpu_uuid else ""
    paid = f"Nothing is charged from {local(event.failed_at)} on."
    owed = event.compensation
    if owed.nanos:
        paid += f" The owner pays {amount_text(owed.nanos, owed.currency)}."
    return where + paid
