"""How long work has between the signal to stop and the kill: one figure for a lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.domain.ids import HostId
from marketplace.domain.facts.events import BidPlaced, LeaseClosed, LeaseEnding, Share
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import next_end
from marketplace.domain.leases.state import grace_of
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    HOST_A,
    HOST_B,
    ONE_HOUR,
    START_GRACE,
    active,
    after,
    kinds,
    share,
)
from tests.marketplace.support.market import Market

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def promised(*terms: tuple[int, int]) -> list[Share]:
    """Return shares of as many hosts, with these notices and graces in seconds."""
    return [
        replace(share(HostId(host), owner), notice_seconds=notice, grace_seconds=grace)
        for (host, owner), (notice, grace) in zip(
            [(HOST_A, ADA), (HOST_B, BOB)], terms, strict=False
        )
    ]


@pytest.mark.parametrize(
    ("terms", "grace_seconds"),
    [
        ([(300, 15)], 15),
        ([(300, 0)], 0),
        ([(900, 900)], 900),
        ([(900, 900), (900, 60)], 900),
        ([(900, 900), (120, 60)], 120),
        ([(900, 900), (0, 0)], 0),
        ([(0, 15)], 15),
    ],
    ids=[
        "its own",
        "none",
        "the most",
        "the longest of two",
        "within the notice of both",
        "none where one owner waits for nothing",
        "as before it was a term",
    ],
)
def test_a_lease_has_one_grace_for_all_its_hosts(
    terms: list[tuple[int, int]], grace_seconds: int
) -> None:
    assert grace_of(promised(*terms)) == grace_seconds * SECOND


def ended_at(lease: Lease, moment: timedelta) -> timedelta:
    """Return when a lease that its consumer leaves then is closed, if its hosts say nothing."""
    now = NOON + ONE_HOUR + moment
    lease = after(lease, lease.close(now=now))
    while lease.state == "ending":
        now += SECOND
        for event in lease.tick(now=now, start_grace=START_GRACE):
            assert isinstance(event, LeaseClosed)
            lease = Lease.evolve(lease, event)
    return now - NOON - ONE_HOUR


@pytest.mark.parametrize(
    ("grace_seconds", "left", "waited"),
    [
        (15, 3 * ONE_HOUR, 30 * SECOND),
        (0, 3 * ONE_HOUR, 30 * SECOND),
        (600, 3 * ONE_HOUR, 615 * SECOND),
        (600, 100 * SECOND, 115 * SECOND),
        (600, 10 * SECOND, 30 * SECOND),
    ],
)
def test_hosts_that_say_nothing_are_waited_for_as_long_as_work_may_run(
    grace_seconds: int, left: timedelta, waited: timedelta
) -> None:
    lease = active(*promised((900, grace_seconds)))
    moment = 4 * ONE_HOUR - left

    assert ended_at(lease, moment) == moment + waited


def test_at_its_deadline_a_lease_is_over_in_half_a_minute_whatever_its_grace() -> None:
    lease = active(*promised((900, 900)))
    assert kinds(lease.tick(now=lease.due_at, start_grace=START_GRACE)) == [LeaseEnding]
    lease = after(lease, lease.tick(now=lease.due_at, start_grace=START_GRACE))

    assert lease.tick(now=lease.ends_at + 29 * SECOND, start_grace=START_GRACE) == []
    [closed] = lease.tick(now=lease.ends_at + 30 * SECOND, start_grace=START_GRACE)
    assert isinstance(closed, LeaseClosed)


@pytest.mark.parametrize("grace_seconds", [0, 15, 600, 900])
def test_the_next_step_is_asked_for_twenty_minutes_before_work_is_asked_to_stop(
    grace_seconds: int,
) -> None:
    """Five for the answer, and fifteen in which the market may be away."""
    ahead = 20 * MINUTE + grace_seconds * SECOND
    market = Market()
    market.bid("x", at=5)
    [bid] = [each.event for each in market.events() if isinstance(each.event, BidPlaced)]
    placed = replace(bid, auto_extend_until=NOON + 10 * ONE_HOUR)
    lease = active(*promised((900, grace_seconds)))

    assert next_end(placed, lease, now=lease.ends_at - ahead - SECOND) is None
    assert next_end(placed, lease, now=lease.ends_at - ahead) == lease.ends_at + ONE_HOUR
