"""The independent check of a round against the market's policies: each kind of fault, planted.

A round is cleared under no policy that binds, and found sound. Then one policy is set that it
breaks: the check has to say so, and to say nothing where the policy is just kept.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ledger.domain.event import Event
from ledger.domain.ids import UserId
from ledger.domain.money import Money
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import BidPlaced, LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import (
    OverrideLifted,
)
from marketplace.domain.verification.verify_round import faults
from tests.conftest import NOON
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET
from tests.marketplace.support.policies import limit, override, put, quota, use
from tests.marketplace.support.rounds import book_of

ROUND = UUID(int=9)
ADA = UserId(UUID(int=77))
RED, BLUE = str(unit_of("red")), str(unit_of("blue"))


class Personal(Governed):
    """Bids are placed by somebody."""

    def put(self, stream: str, event: Event):  # type: ignore[no-untyped-def]
        if isinstance(event, BidPlaced):
            event = replace(event, user_id=ADA)
        return super().put(stream, event)


def sound() -> tuple[Book, RoundCleared, list[LeaseGranted]]:
    """Return a round: red gets 3 GPUs for two hours, blue 2 for one; red held 1 before.

    Red is within its 4, blue borrows all it has.
    """
    market = Personal()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), blue=(0, None))
    market.ask("red", "held", 1, hours=6)
    market.run()
    market.policy(quota("lab", 4))
    market.ask("red", "some", 3, hours=2, at=3, patience="patient")
    market.ask("blue", "few", 2, hours=1, at=3, patience="patient")
    book = book_of(market)
    first, *rest = on_round(book, now=from_above(NOON), round_id=ROUND)
    assert isinstance(first, RoundCleared)
    return book, first, [each for each in rest if isinstance(each, LeaseGranted)]


MIB = 81_559
KEPT: dict[str, Event | tuple[Event, ...]] = {
    "lent by who has more than it needs": (quota("lab", 1), quota(RED, 6)),
    "nominal, borrowed from the cohort": quota(RED, 2),
    "borrowing": quota(BLUE, 0, borrowing=2),
    "an override that nobody feels": override(RED, 4, 0.5),
    "an override after all is over": override(BLUE, 0, 3),
    "of one bid": limit("bid", gpus=3, memory_mib=3 * MIB, gpu_hours=6),
    "of a user": limit("user", gpus=6, memory_mib=6 * MIB, gpu_hours=14),
    "of a unit": limit("subscriber", gpus=4, gpu_hours=12),
    "of a tenant": limit("tenant", gpus=4, gpu_hours=12),
    "of somebody else": limit("user", UUID(int=5), gpus=0),
    "money of a bid": limit("bid", money=Money(9 * 10**9)),
    "another money": limit("bid", money=Money(0, "EUR")),
    "allowed by name": use("lease", RED, allowed=True),
    "other GPUs are not allowed": use("lease", None, allowed=False, gpu_class="T4"),
    "who borrows nothing may not": use("borrow", RED, allowed=False),
}
BROKEN: dict[str, tuple[Event | tuple[Event, ...], str]] = {
    "nothing to borrow": (quota("lab", 0), "used of 4 that lab may have"),
    "borrowing limit": (quota(BLUE, 0, borrowing=1), f"2 used of 1 that {BLUE} may have"),
    "lending limit": (
        (quota("lab", 1), quota(RED, 6, lending=0)),
        "2 used of 1 that lab may have",
    ),
    "an override in the middle": (override(BLUE, 1, 0.5), f"2 used of 1 that {BLUE} may have"),
    "GPUs of a bid": (limit("bid", gpus=2), "limit bid: 3 > 2 GPUs"),
    "memory of a bid": (limit("bid", memory_mib=3 * MIB - 1), "MiB"),
    "hours of a bid": (limit("bid", gpu_hours=5), "GPU-milliseconds"),
    "money of a bid": (limit("bid", money=Money(1)), "nano-USD"),
    "GPUs of a user": (limit("user", gpus=5), "limit user: 6 > 5 GPUs"),
    "memory of a user": (limit("user", memory_mib=6 * MIB - 1), "limit user"),
    "hours of a user": (limit("user", gpu_hours=13), "limit user"),
    "the limit of one user": (limit("user", ADA, gpus=5), "limit user"),
    "GPUs of a unit": (limit("subscriber", gpus=3), "limit subscriber: 4 > 3 GPUs"),
    "hours of a unit": (limit("subscriber", gpu_hours=11), "limit subscriber"),
    "GPUs of a tenant": (limit("tenant", gpus=3), "limit tenant: 4 > 3 GPUs"),
    "money of a tenant": (limit("tenant", money=Money(1)), "limit tenant"),
    "not allowed at all": (use("lease", None, allowed=False), "may not be leased"),
    "not allowed to a unit": (use("lease", RED, allowed=False), "may not be leased"),
    "not allowed to borrow": (use("borrow", BLUE, allowed=False), "not to be borrowed"),
}


def test_a_round_that_breaks_nothing_has_no_fault() -> None:
    book, told, grants = sound()

    assert len(grants) == 2
    assert faults(book, told, grants) == []


@pytest.mark.parametrize("name", KEPT)
def test_a_policy_that_is_just_kept_is_no_fault(name: str) -> None:
    book, told, grants = sound()

    put(book, KEPT[name])

    assert faults(book, told, grants) == []


@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_of_broken_policy_is_found(name: str) -> None:
    book, told, grants = sound()
    policy, said = BROKEN[name]

    put(book, policy)

    found = faults(book, told, grants)
    assert any(said in str(fault) for fault in found), found
    ours = {granted.lease_id for granted in grants}
    assert {fault.lease_id for fault in found} <= ours
    # What is not at fault is kept.
    rest = [each for each in grants if each.lease_id not in {fault.lease_id for fault in found}]
    assert not [fault for fault in faults(book, told, rest) if fault.lease_id is not None]


def test_what_was_over_before_is_not_held_against_a_round_that_adds_nothing_to_it() -> None:
    book, told, grants = sound()
    book.apply(override(RED, 2, 0.25), 1_000)
    book.apply(OverrideLifted(market=MARKET, override_id=UUID(int=3), at=NOON), 1_001)
    # Blue alone: red's one GPU is over a quota of none, blue stays within its own.
    book.apply(quota(RED, 0, borrowing=0), 1_002)
    book.apply(quota(BLUE, 2, borrowing=0), 1_003)
    mine = [granted for granted in grants if len(granted.shares[0].gpu_uuids) == 2]

    found = [fault for fault in faults(book, told, mine) if fault.lease_id is not None]

    assert found == []
