"""A bid and the money behind it: placed together, changed together, given back together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.commands.money import add_funds, open_account, place_hold
from ledger.domain.account_ids import cash_account, funds_account
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.holds import HoldClosed
from ledger.domain.ids import BidId, EntryId, HoldId, LeaseId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, CurrencyUnknown, Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Write, load, record
from marketplace.commands.bids import (
    amend_bid,
    cancel_bid,
    expire_bid,
    place_bid,
    release_stray_hold,
)
from marketplace.domain.bids import bid as bids
from marketplace.domain.bids import bounds
from marketplace.domain.bids.bid import Bid, BidTerms, BidTermsDiffer
from marketplace.domain.bids.images import ImageWithoutDigest
from marketplace.domain.bids.workload_profiles import WorkloadUnknown
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.policies import release_hold_when_bid_over
from tests.conftest import NOON
from tests.marketplace.support.market import rate, somebody

PLATFORM, TENANT = TenantId(UUID(int=1)), TenantId(UUID(int=2))
UNIT = SubscriberId(UUID(int=3))
FUNDS = funds_account(UNIT, "USD")
BID = BidId(UUID(int=4))
HOUR = timedelta(hours=1)

TERMS = BidTerms(
    bid_id=BID,
    tenant_id=TENANT,
    subscriber_id=UNIT,
    user_id=None,
    account_id=FUNDS,
    market="main",
    request=GpuRequest(models=("H100",)),
    gpus=2,
    placement="same-host",
    duration_seconds=3 * 3600,
    earliest_start=NOON + HOUR,
    deadline=NOON + 6 * HOUR,
    limit=rate(2),
    service_class="on-demand",
    patience="immediate",
    workload=Workload(kind="inference-7b", command=("serve", "--port", "8000")),
)


@pytest.fixture
def funded(store: MemoryStore) -> MemoryStore:
    """Give the unit 20 dollars: enough for one bid of 12, not for two."""
    for account_id, tenant_id, kind, overdraft in (
        (FUNDS, TENANT, "prepaid", 0),
        (cash_account(PLATFORM, "USD"), PLATFORM, "cash", None),
    ):
        open_account(
            store,
            account_id=account_id,
            tenant_id=tenant_id,
            subscriber_id=UNIT if kind == "prepaid" else None,
            kind=kind,  # type: ignore[arg-type]  # a literal of the table above
            title=kind,
            currency="USD",
            overdraft_nanos=overdraft,
            by=somebody(),
            now=NOON,
        )
    add_funds(
        store,
        account_id=FUNDS,
        entry_id=EntryId(uuid4()),
        money=Money(20 * NANOS_PER_UNIT),
        reference="test",
        platform_id=PLATFORM,
        by=somebody(),
        now=NOON,
    )
    return store


def held(store: MemoryStore) -> int:
    account = load(store, Account, FUNDS)
    assert account is not None
    return account.held.nanos


def bid_in(store: MemoryStore) -> Bid:
    bid = load(store, Bid, BID)
    assert bid is not None
    return bid


def put(store: MemoryStore, terms: BidTerms = TERMS, now: datetime = NOON) -> int:
    return place_bid(store, terms=terms, by=somebody(), now=now)


def test_a_bid_sets_aside_the_most_it_can_cost(funded: MemoryStore) -> None:
    put(funded)

    assert bid_in(funded).state == "open"
    assert held(funded) == 2 * 3 * 2 * NANOS_PER_UNIT


def test_a_bid_that_the_account_does_not_cover_is_not_placed(funded: MemoryStore) -> None:
    put(funded)
    head = funded.head()

    with pytest.raises(FundsInsufficient):
        put(funded, replace(TERMS, bid_id=BidId(UUID(int=5))))

    assert funded.head() == head


def test_placing_the_same_bid_again_changes_nothing(funded: MemoryStore) -> None:
    first = put(funded)

    again = put(funded, now=NOON + timedelta(minutes=1))

    assert again == first
    assert held(funded) == 12 * NANOS_PER_UNIT


def test_a_bid_with_an_id_that_is_taken_is_refused_and_holds_nothing_more(
    funded: MemoryStore,
) -> None:
    put(funded)

    with pytest.raises(bids.BidTermsDiffer):
        put(funded, replace(TERMS, gpus=1))

    assert held(funded) == 12 * NANOS_PER_UNIT


def test_a_repeat_after_the_bid_was_cancelled_does_not_hold_again(funded: MemoryStore) -> None:
    put(funded)
    cancel_bid(funded, bid_id=BID, by=somebody(), now=NOON)

    put(funded)

    assert bid_in(funded).state == "cancelled"
    assert held(funded) == 0


def test_a_bid_whose_second_step_was_lost_is_completed_by_the_repeat(funded: MemoryStore) -> None:
    class Dies(Exception):
        pass

    class DyingStore(MemoryStore):
        def append(self, stream: str, *args: Any, **options: Any) -> Any:
            if stream.startswith("bid-"):
                raise Dies
            return MemoryStore.append(self, stream, *args, **options)

    dying = DyingStore()
    dying.__dict__.update(funded.__dict__)
    with pytest.raises(Dies):
        put(dying)
    assert held(funded) == 12 * NANOS_PER_UNIT

    put(funded)

    assert bid_in(funded).state == "open"
    assert held(funded) == 12 * NANOS_PER_UNIT


def test_a_higher_limit_holds_more_and_a_lower_one_less(funded: MemoryStore) -> None:
    put(funded)

    for limit, dollars in ((3, 18), (1, 6)):
        amend_bid(funded, bid_id=BID, limit=rate(limit), deadline=None, by=somebody(), now=NOON)
        assert bid_in(funded).limit == rate(limit)
        assert held(funded) == dollars * NANOS_PER_UNIT


def test_an_amendment_that_is_not_covered_changes_nothing(funded: MemoryStore) -> None:
    put(funded)
    head = funded.head()

    with pytest.raises(FundsInsufficient):
        amend_bid(funded, bid_id=BID, limit=rate(4), deadline=None, by=somebody(), now=NOON)

    assert funded.head() == head


def test_a_deadline_can_move_but_not_out_of_reach(funded: MemoryStore) -> None:
    put(funded)

    amend_bid(funded, bid_id=BID, limit=None, deadline=NOON + 5 * HOUR, by=somebody(), now=NOON)
    with pytest.raises(bounds.DeadlineTooSoon):
        amend_bid(funded, bid_id=BID, limit=None, deadline=NOON + 3 * HOUR, by=somebody(), now=NOON)

    assert bid_in(funded).deadline == NOON + 5 * HOUR


def fill(store: MemoryStore, lease_id: LeaseId) -> None:
    """Ask the bid's own stream, as the policy does that takes up a grant."""
    record(
        store, Bid, BID, lambda bid: bid.fill(lease_id=lease_id, now=NOON) if bid else [],
        by=somebody(),
    )  # fmt: skip


def test_cancelling_gives_the_money_back_once(funded: MemoryStore) -> None:
    put(funded)

    first = cancel_bid(funded, bid_id=BID, by=somebody(), now=NOON)
    cancel_bid(funded, bid_id=BID, by=somebody(), now=NOON)

    assert held(funded) == 0
    assert first <= funded.head()


def test_a_filled_bid_cannot_be_cancelled_and_keeps_its_hold(funded: MemoryStore) -> None:
    put(funded)
    fill(funded, LeaseId(UUID(int=9)))

    with pytest.raises(bids.BidNotOpen):
        cancel_bid(funded, bid_id=BID, by=somebody(), now=NOON)

    assert held(funded) == 12 * NANOS_PER_UNIT


def test_a_grant_that_comes_after_the_cancellation_is_refused(funded: MemoryStore) -> None:
    put(funded)
    cancel_bid(funded, bid_id=BID, by=somebody(), now=NOON)

    with pytest.raises(bids.BidNotOpen):
        fill(funded, LeaseId(UUID(int=9)))


def test_the_same_grant_fills_once_and_another_is_refused(funded: MemoryStore) -> None:
    put(funded)
    lease_id, other = LeaseId(UUID(int=9)), LeaseId(UUID(int=10))

    for _ in range(2):
        fill(funded, lease_id)
    with pytest.raises(bids.BidNotOpen):
        fill(funded, other)

    assert bid_in(funded).lease_id == lease_id


def test_a_bid_expires_only_when_it_can_no_longer_be_met(funded: MemoryStore) -> None:
    put(funded)
    latest = NOON + 3 * HOUR

    with pytest.raises(bids.BidStillPossible):
        expire_bid(funded, bid_id=BID, by=somebody(), now=latest)
    expire_bid(funded, bid_id=BID, by=somebody(), now=latest + timedelta(seconds=1))

    assert bid_in(funded).state == "expired"
    assert held(funded) == 0


@pytest.mark.parametrize("verb", ["cancel", "expire"])
def test_money_comes_back_though_the_process_died_before_giving_it_back(
    funded: MemoryStore, verb: str
) -> None:
    """On either way a bid can end, between its end and the release of its hold."""
    put(funded)
    late = NOON + 4 * HOUR

    class Dies(Exception):
        pass

    class DyingStore(MemoryStore):
        def append(self, stream: str, *args: Any, **options: Any) -> Any:
            if stream.startswith("account-"):
                raise Dies
            return MemoryStore.append(self, stream, *args, **options)

    dying = DyingStore()
    dying.__dict__.update(funded.__dict__)
    with pytest.raises(Dies):
        if verb == "cancel":
            cancel_bid(dying, bid_id=BID, by=somebody(), now=NOON)
        else:
            expire_bid(dying, bid_id=BID, by=somebody(), now=late)
    assert held(funded) > 0
    *_, over = funded.read_stream(f"bid-{BID}")

    for _ in range(2):
        release_hold_when_bid_over(over, funded)

    assert held(funded) == 0


REFUSED: list[tuple[type[Refusal], dict[str, Any]]] = [
    (bounds.GpuCountOutOfBounds, {"gpus": 0}),
    (bounds.GpuCountOutOfBounds, {"gpus": -3}),
    (bounds.GpuCountOutOfBounds, {"gpus": 1025}),
    (bounds.DurationOutOfBounds, {"duration_seconds": 59}),
    (bounds.DurationOutOfBounds, {"duration_seconds": 28 * 86_400 + 1}),
    (bounds.DeadlineTooSoon, {"deadline": NOON + 3 * HOUR}),
    (
        bounds.DeadlineUnreachable,
        {"earliest_start": NOON - 4 * timedelta(minutes=1), "deadline": NOON},
    ),
    (bounds.StartInThePast, {"earliest_start": NOON - HOUR}),
    (bounds.DeadlineTooFarAhead, {"deadline": NOON + timedelta(days=29)}),
    (bounds.TimeWithoutZone, {"earliest_start": datetime(2026, 1, 5, 13)}),  # noqa: DTZ001 -- that is the point
    (bounds.TimeWithoutZone, {"deadline": datetime(2026, 1, 5, 18)}),  # noqa: DTZ001 -- that is the point
    (bounds.LimitOutOfBounds, {"limit": Rate(0)}),
    (bounds.LimitOutOfBounds, {"limit": Rate(-1)}),
    (bounds.LimitOutOfBounds, {"limit": Rate(10_000 * NANOS_PER_UNIT + 1)}),
    (CurrencyUnknown, {"limit": Rate(1, "usd")}),
    (WorkloadUnknown, {"workload": Workload(kind="mining")}),
    (bounds.CommandTooLong, {"workload": Workload(kind="other", command=("x" * 8_193,))}),
    (bounds.CommandTooLong, {"workload": Workload(kind="other", command=("x",) * 257)}),
    (bounds.CommandTooLong, {"workload": Workload(kind="other", command=("a\0b",))}),
    (
        bounds.EnvironmentUnreadable,
        {"workload": Workload(kind="other", environment=(("NOT A NAME", "x"),))},
    ),
    *(
        (ImageWithoutDigest, {"workload": Workload(kind="other", image=image)})
        for image in (
            "train",
            "docker.example/train:latest",
            f"train:latest@sha256:{'0' * 64}",
            f"train@sha256:{'0' * 63}",
            f"train@md5:{'0' * 64}",
            f"--privileged@sha256:{'0' * 64}",
            f"../train@sha256:{'0' * 64}",
            f"a b@sha256:{'0' * 64}",
            f"{'a' * 600}@sha256:{'0' * 64}",
        )
    ),
    (bounds.MarketUnreadable, {"market": "No Such Market"}),
    (bounds.CostCentreUnreadable, {"cost_centre": "x" * 65}),
    (bounds.RequestUnreadable, {"request": GpuRequest(memory_mib_min=-1)}),
    (bounds.RequestUnreadable, {"request": GpuRequest(compute_capability_min="nine")}),
    (bounds.RequestUnreadable, {"request": GpuRequest(labels=(("a b", "c"),))}),
    (bounds.RequestUnreadable, {"request": GpuRequest(region="")}),
]


@pytest.mark.parametrize(("refusal", "wrong"), REFUSED)
def test_a_bid_that_makes_no_sense_is_refused_and_nothing_is_recorded(
    funded: MemoryStore, refusal: type[Refusal], wrong: dict[str, Any]
) -> None:
    head = funded.head()

    with pytest.raises(refusal):
        put(funded, replace(TERMS, **wrong))

    assert funded.head() == head


def test_what_a_bid_leaves_out_is_completed() -> None:
    asked = replace(TERMS, request=GpuRequest(), earliest_start=None, deadline=None, gpus=1)

    placed = bids.place(asked, now=NOON)

    assert placed.earliest_start == NOON
    assert placed.deadline == NOON + 3 * HOUR + bounds.DEADLINE_ROOM
    assert placed.request.memory_mib_min == 18 * 1024
    assert placed.request.compute_capability_min == "7.0"


def test_a_hold_whose_bid_never_came_is_given_back_and_not_bid_upon(funded: MemoryStore) -> None:
    """A request died between hold and bid, the hold was swept, and the request came again."""
    place_hold(
        funded,
        account_id=TERMS.account_id,
        hold_id=HoldId(BID),
        money=Money(12 * NANOS_PER_UNIT),
        purpose=f"bid:{BID}",
        by=somebody(UUID(int=77)),
        now=NOON,
    )

    assert release_stray_hold(
        funded, account_id=TERMS.account_id, bid_id=BID, by=somebody(), now=NOON
    )

    assert held(funded) == 0
    with pytest.raises(HoldClosed):
        place_bid(funded, terms=TERMS, by=somebody(UUID(int=77)), now=NOON)
    assert load(funded, Bid, BID) is None


def test_the_hold_of_a_bid_that_came_is_kept(funded: MemoryStore) -> None:
    put(funded)

    assert not release_stray_hold(
        funded, account_id=TERMS.account_id, bid_id=BID, by=somebody(), now=NOON
    )

    assert held(funded) == 12 * NANOS_PER_UNIT


class Overtaken(MemoryStore):
    """Lets somebody else in just before the first append of a bid."""

    rival: Callable[[], object] | None = None

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append all or nothing, after the rival did."""
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        return super().append_whole(writes)


def test_of_two_bids_of_one_id_at_once_one_leaves_no_hold() -> None:
    """A hold has one account: with two the tables of money, and so all books, would stop."""
    store = Overtaken()
    other = SubscriberId(UUID(int=33))
    accounts = (FUNDS, funds_account(other, "USD"))
    for account_id, unit in zip(accounts, (UNIT, other), strict=True):
        open_account(
            store,
            account_id=account_id,
            tenant_id=TENANT,
            subscriber_id=unit,
            kind="chargeback",
            title="unit",
            currency="USD",
            overdraft_nanos=None,
            by=somebody(),
            now=NOON,
        )
    theirs = replace(TERMS, subscriber_id=other, account_id=accounts[1])
    store.rival = lambda: place_bid(store, terms=theirs, by=somebody(), now=NOON)

    with pytest.raises(BidTermsDiffer):
        place_bid(store, terms=TERMS, by=somebody(), now=NOON)

    held = [load(store, Account, each) for each in accounts]
    assert [each.held.nanos > 0 for each in held if each is not None] == [False, True]
