"""When a host, or some of its GPUs, rest for maintenance, as its owner or an operator says.

A window is announced: from then on nothing is leased into it. It may be moved and cancelled until
it is over. What becomes of leases that would run into it is the market's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from ledger.domain.ids import HostId, MaintenanceId
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.span import Window
from listings.domain.maintenance_events import (
    MaintenanceAnnounced,
    MaintenanceCancelled,
    MaintenanceEvent,
    MaintenanceMoved,
)

LENGTH_MAX = timedelta(days=30)
AHEAD_MAX = timedelta(days=366)
OPEN_MAX = 20
REASON_CHARS_MAX = 200

Planned = Mapping[MaintenanceId, MaintenanceAnnounced]
"""The windows of a host that were not cancelled, each as it was moved last."""


class MaintenanceUnknown(Unknown):
    """The host has no such maintenance window, or it was cancelled."""


class MaintenanceOver(Invalid):
    """A maintenance window ends in the future; this one would be over already."""


class MaintenanceTooLong(Invalid):
    """A maintenance window is at most 30 days long. To take a host off for longer, drain it."""


class MaintenanceTooFar(Invalid):
    """A maintenance window begins within a year."""


class MaintenanceReasonUnreadable(Invalid):
    """Say in one line, of up to 200 characters, what the maintenance is for: consumers read it."""


class MaintenanceTermsDiffer(Refusal):
    """A window with this id was announced already, with other terms: move it, or cancel it."""


class TooManyMaintenances(Refusal):
    """A host has at most twenty maintenance windows that are not over."""


def after(planned: Planned, event: MaintenanceEvent) -> dict[MaintenanceId, MaintenanceAnnounced]:
    """Return the windows of a host after one more fact; those that are over are dropped."""
    key = event.maintenance_id
    match event:
        case MaintenanceAnnounced():
            open_ = {k: v for k, v in planned.items() if v.window.ends_at > event.at}
            return {**open_, key: event}
        case MaintenanceMoved():
            return {**planned, key: replace(planned[key], window=event.window)}
        case MaintenanceCancelled():
            return {k: v for k, v in planned.items() if k != key}
        case _:
            assert_never(event)


def announce(
    planned: Planned,
    *,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    window: Window,
    gpu_uuids: Sequence[str],
    reason: str,
    now: datetime,
) -> list[MaintenanceAnnounced]:
    """Decide to announce a window; again with the same terms is harmless.

    One that would have begun already begins now.
    Raises: MaintenanceOver, MaintenanceTooLong, MaintenanceTooFar, MaintenanceReasonUnreadable,
        MaintenanceTermsDiffer, TooManyMaintenances.
    """
    said = reason.strip()
    if not 0 < len(said) <= REASON_CHARS_MAX or not said.isprintable():
        raise MaintenanceReasonUnreadable(chars_max=REASON_CHARS_MAX)
    which, known = tuple(sorted(set(gpu_uuids))), planned.get(maintenance_id)
    if known is not None:
        same = (known.window.ends_at, known.gpu_uuids, known.reason)
        begins = max(window.starts_at, known.at.replace(microsecond=0))
        if same != (window.ends_at, which, said) or known.window.starts_at != begins:
            raise MaintenanceTermsDiffer(maintenance_id=str(maintenance_id))
        return []
    if sum(each.window.ends_at > now for each in planned.values()) >= OPEN_MAX:
        raise TooManyMaintenances(maintenances_max=OPEN_MAX)
    return [
        MaintenanceAnnounced(
            host_id=host_id,
            maintenance_id=maintenance_id,
            window=_checked(window, now),
            gpu_uuids=which,
            reason=said,
            at=now,
        )
    ]


def move(
    planned: Planned, maintenance_id: MaintenanceId, window: Window, *, now: datetime
) -> list[MaintenanceMoved]:
    """Decide to have a window at another time; one that has begun may only end at another.

    Raises: MaintenanceUnknown, MaintenanceOver, MaintenanceTooLong, MaintenanceTooFar.
    """
    known = _known(planned, maintenance_id, now)
    begun = known.window.starts_at <= now
    starts_at = (
        known.window.starts_at if begun else max(window.starts_at, now.replace(microsecond=0))
    )
    if window.ends_at <= now:
        raise MaintenanceOver(ends_at=window.ends_at)
    wanted = Window(starts_at, window.ends_at)
    if not begun:
        wanted = _checked(wanted, now)
    elif wanted.length > LENGTH_MAX:
        raise MaintenanceTooLong(days_max=LENGTH_MAX.days)
    if wanted == known.window:
        return []
    return [
        MaintenanceMoved(
            host_id=known.host_id, maintenance_id=maintenance_id, window=wanted, at=now
        )
    ]


def cancel(
    planned: Planned, maintenance_id: MaintenanceId, *, now: datetime
) -> list[MaintenanceCancelled]:
    """Decide that there is no such maintenance, or that it is over now.

    Raises: MaintenanceUnknown.
    """
    known = _known(planned, maintenance_id, now)
    return [MaintenanceCancelled(host_id=known.host_id, maintenance_id=maintenance_id, at=now)]


def _known(planned: Planned, maintenance_id: MaintenanceId, now: datetime) -> MaintenanceAnnounced:
    known = planned.get(maintenance_id)
    if known is None or known.window.ends_at <= now:
        raise MaintenanceUnknown(maintenance_id=str(maintenance_id))
    return known


def _checked(window: Window, now: datetime) -> Window:
    if window.ends_at <= now:
        raise MaintenanceOver(ends_at=window.ends_at)
    starts_at = max(window.starts_at, now.replace(microsecond=0))
    if window.ends_at - starts_at > LENGTH_MAX:
        raise MaintenanceTooLong(days_max=LENGTH_MAX.days)
    if starts_at - now > AHEAD_MAX:
        raise MaintenanceTooFar(days_max=AHEAD_MAX.days)
    return Window(starts_at, window.ends_at)
