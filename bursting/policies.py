"""When something happens to a rented instance, what is asked for next."""

from __future__ import annotations

from bursting.commands.records import book_stray, settle_instance
from bursting.domain.events import BurstLost, BurstRefused, BurstTerminated, StrayEnded
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of


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
        name="bursting.book-when-stray-ended",
        react=book_when_stray_ended,
        on=names_of(StrayEnded),
    ),
)
