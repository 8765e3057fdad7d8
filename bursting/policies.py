"""When something happens to a rented instance, what is asked for next."""

from __future__ import annotations

from bursting.commands.records import book_stray, instance_known, lease_of, settle_instance
from bursting.domain.events import BurstLost, BurstRefused, BurstTerminated, StrayEnded
from bursting.domain.instances import host_of
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of
from marketplace.commands.losses import end_for_machine


def settle_when_instance_over(recorded: Recorded, store: EventStore) -> None:
    """What an instance cost is counted, its host retired, its part of the budget freed."""
    over = recorded.event
    assert isinstance(over, BurstRefused | BurstTerminated | BurstLost)
    settle_instance(
        store,
        instance_id=over.instance_id,
        by=Meta.because(recorded, policy="settle-when-instance-over"),
        now=over.at,
    )


def end_lease_when_machine_gone(recorded: Recorded, store: EventStore) -> None:
    """A lease whose machine is gone ends at once, and its work goes on elsewhere.

    Its agent would be missed only after half an hour.
    """
    over = recorded.event
    assert isinstance(over, BurstTerminated | BurstLost)
    instance = instance_known(store, over.instance_id)
    lease = lease_of(store, instance)
    host_id = host_of(over.instance_id)
    if lease is None or host_id not in lease.hosts:
        return
    end_for_machine(
        store,
        lease_id=lease.terms.lease_id,
        host_id=host_id,
        gone_at=over.ended_at or over.at,
        by=Meta.because(recorded, policy="end-lease-when-machine-gone"),
        now=over.at,
    )


def book_when_stray_ended(recorded: Recorded, store: EventStore) -> None:
    """What a machine outside the record did cost is counted like that of any other."""
    ended = recorded.event
    assert isinstance(ended, StrayEnded)
    book_stray(
        store,
        stray_id=ended.stray_id,
        by=Meta.because(recorded, policy="book-when-stray-ended"),
        now=ended.at,
    )


POLICIES = (
    Policy(
        name="bursting.settle-when-instance-over",
        react=settle_when_instance_over,
        on=names_of(BurstRefused, BurstTerminated, BurstLost),
    ),
    Policy(
        name="bursting.end-lease-when-machine-gone",
        react=end_lease_when_machine_gone,
        on=names_of(BurstTerminated, BurstLost),
    ),
    Policy(
        name="bursting.book-when-stray-ended",
        react=book_when_stray_ended,
        on=names_of(StrayEnded),
    ),
)
