"""What follows from a lease and its use: a meter, charges, and the rest of the hold set free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from ledger.commands.money import release_hold
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.eventstore.together import NONE_YET, Part, record_together
from ledger.following import Policy, names_of
from marketplace.domain.facts.events import LeaseScheduled
from metering.commands import charge_window, opening_meter, terms_of_lease
from metering.domain.events import MeterClosed, UsageCorrected, UsageWindowClosed

log = structlog.get_logger()


def open_meter_when_lease_scheduled(recorded: Recorded, store: EventStore) -> None:
    """A lease is measured from its first instant, so the meter is there before the work."""
    record_together(store, _opening(recorded))


def open_meters(scheduled: Sequence[Recorded], store: EventStore) -> list[list[list[Part]]]:
    """Return what opens a meter for each of these leases, none of which has one most likely."""
    return [
        [[replace(part, seen=NONE_YET) for part in _opening(recorded)]] for recorded in scheduled
    ]


def _opening(recorded: Recorded) -> list[Part]:
    lease = recorded.event
    assert isinstance(lease, LeaseScheduled)
    meter = opening_meter(
        lease_id=lease.lease_id,
        window=lease.window,
        gpus=sum(len(share.gpu_uuids) for share in lease.shares),
        by=Meta.because(recorded, policy="open-meter-when-lease-scheduled"),
        now=lease.at,
    )
    return [meter]


def charge_when_rated(recorded: Recorded, store: EventStore) -> None:
    """A closed usage window is charged; after the last one the hold is released.

    One policy for both, so that the hold is never released before its last window is charged.
    """
    by = Meta.because(recorded, policy="charge-when-rated")
    match recorded.event:
        case UsageWindowClosed() | UsageCorrected() as closed:
            try:
                charge_window(store, closed, by=by, now=closed.at)
            except Refusal as refusal:
                # One lease that cannot be charged must not leave all others uncharged; what is
                # left is asked again by `loops.charge_what_is_left` and shown by `doctor`.
                log.error("usage.not-charged", lease=str(closed.lease_id), code=refusal.code)
        case MeterClosed() as done:
            terms = terms_of_lease(store, done.lease_id)
            assert terms is not None
            try:
                release_hold(
                    store, account_id=terms.account_id, hold_id=terms.hold_id, by=by, now=done.at
                )
            except Refusal as refusal:
                log.error("hold.not-released", lease=str(done.lease_id), code=refusal.code)


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="metering.open-meter-when-lease-scheduled",
        react=open_meter_when_lease_scheduled,
        on=names_of(LeaseScheduled),
        ask=open_meters,
    ),
    Policy(
        name="metering.charge-when-rated",
        react=charge_when_rated,
        on=names_of(UsageWindowClosed, UsageCorrected, MeterClosed),
    ),
)
