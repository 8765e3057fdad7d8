"""What was spent is counted by whom and what it was for, and told to the budgets by a loop."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from ledger.access import Actor
from ledger.domain.events import Role
from ledger.domain.ids import SubscriberId, UserId
from ledger.domain.usage_items import UsageItem
from ledger.eventstore.port import load
from marketplace.commands.spending import set_spending_budget
from marketplace.domain.spending.budget import PPM, BudgetUsedUp
from marketplace.domain.spending.budgets import Budgets
from marketplace.domain.spending.events import BudgetScope
from marketplace.models.spending import SpendingBidRow, SpendingBudgetRow, SpendingCrossingRow
from marketplace.queries import spending as queries
from tests.marketplace.support.spending import budget, usd
from tests.marketplace.support.spent import Spender
from tests.pages.world import BY, World

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 11, 12, tzinfo=UTC)
MARCH = date(2026, 3, 1), date(2026, 4, 1)
ANNA, BERT = UserId(uuid4()), UserId(uuid4())


@pytest.fixture
def spender() -> Spender:
    world = World(now=NOON)
    world.found()
    return Spender(world)


def actor(
    spender: Spender,
    *roles: Role,
    user: UserId = ANNA,
    unit: SubscriberId | None = None,
) -> Actor:
    return Actor(
        tenant_id=spender.tenant_id, user_id=user, subscriber_id=unit, roles=frozenset(roles)
    )


def limited(spender: Spender, amount: float) -> UUID:
    terms = budget(amount=amount, tenant_id=spender.tenant_id, at=spender.world.now)
    set_spending_budget(spender.world.store, terms=terms, by=BY)
    return terms.budget_id


def test_spending_is_told_apart_by_project_person_and_day(spender: Spender) -> None:
    one = spender.bid(project="llm", user=ANNA)
    two = spender.bid(kind="training-7b", user=BERT)
    spender.charge(one, hours=2, at=NOON - timedelta(days=1))
    spender.charge(one, at=NOON + timedelta(hours=2))
    spender.charge(two, at=NOON)
    spender.look()
    rows = queries.spending(actor(spender, "finance"), *MARCH)
    by_project = {each.key: each.spent_nanos for each in queries.spent_by(rows, "project")}
    assert by_project == {"llm": usd(3).nanos, "": usd(1).nanos}
    by_person = {each.key: each.spent_nanos for each in queries.spent_by(rows, "person")}
    assert by_person == {str(ANNA): usd(3).nanos, str(BERT): usd(1).nanos}
    assert queries.spent_by_day(rows, "USD") == {
        date(2026, 3, 10): usd(2).nanos,
        date(2026, 3, 11): usd(2).nanos,
    }
    only = queries.chosen(rows, {"project": "llm"})
    assert [each.leases for each in queries.spent_by(only, "kind")] == [1]
    assert not queries.chosen(rows, {"unit": "nobody"})
    with pytest.raises(queries.SpendingByUnknown):
        queries.spent_by(rows, "colour")


def test_each_layer_sees_its_own(spender: Spender) -> None:
    for user in (ANNA, BERT):
        spender.charge(spender.bid(user=user), at=NOON)
    spender.look()

    def seen(who: Actor) -> int:
        return sum(each.spent_nanos for each in queries.spending(who, *MARCH))

    assert seen(actor(spender, "finance")) == usd(2).nanos
    assert seen(actor(spender, "consumer", unit=spender.world.unit_id)) == usd(2).nanos
    assert seen(actor(spender, "consumer")) == usd(1).nanos
    assert seen(actor(spender, "consumer", user=UserId(uuid4()))) == 0


def test_a_capture_moves_what_is_held_to_what_is_spent(spender: Spender) -> None:
    limited(spender, 10)
    bid = spender.bid(hours=4)
    spender.charge(bid, hours=1, at=NOON)
    spender.look()
    row = SpendingBidRow.objects.get(pk=bid)
    assert (row.captured_nanos, row.left_nanos) == (usd(1).nanos, usd(3).nanos)
    [standing] = queries.standings(
        SpendingBudgetRow.objects.all(), spender.world.store, now=spender.world.now
    )
    assert (standing.spent, standing.held) == (usd(1).nanos, usd(3).nanos)
    assert standing.left == usd(6).nanos
    assert not standing.blocked


def test_what_is_released_can_be_bid_again_once_it_was_looked_at(spender: Spender) -> None:
    limited(spender, 5)
    bid = spender.bid(hours=4)
    with pytest.raises(BudgetUsedUp):
        spender.bid(hours=2)
    spender.charge(bid, hours=1, at=NOON)
    spender.release(bid)
    spender.look()
    spender.bid(hours=4)
    with pytest.raises(BudgetUsedUp):
        spender.bid(hours=1)


def test_a_look_in_the_next_month_opens_the_budget(spender: Spender) -> None:
    limited(spender, 4)
    bid = spender.bid(hours=4)
    spender.charge(bid, hours=4, at=NOON)
    spender.look()
    with pytest.raises(BudgetUsedUp):
        spender.bid(hours=1)
    spender.world.now = datetime(2026, 4, 1, tzinfo=UTC)
    spender.look()
    spender.bid(hours=4)


def test_thresholds_that_are_met_are_rows_once(spender: Spender) -> None:
    limited(spender, 8)
    bid = spender.bid(hours=4)
    spender.charge(bid, hours=4, at=NOON)
    spender.look()
    spender.look()
    spender.look(spender.world.now + timedelta(minutes=5))
    [row] = SpendingCrossingRow.objects.all()
    assert (row.at_ppm, row.action, row.used_nanos) == (500_000, "notify", usd(4).nanos)


def test_looking_again_writes_nothing(spender: Spender) -> None:
    limited(spender, 8)
    spender.bid(hours=2)
    spender.look()
    before = spender.world.store.head()
    for minutes in range(1, 5):
        spender.look(spender.world.now + timedelta(minutes=minutes))
    assert spender.world.store.head() == before
    budgets = load(spender.world.store, Budgets, spender.tenant_id)
    assert budgets is not None
    [known] = budgets.budgets.values()
    assert not known.drawn_since
    assert known.noted is not None
    assert known.noted.held == usd(2)


BUDGETS_OF: dict[BudgetScope, int] = {"tenant": 6, "unit": 6, "person": 5, "project": 1, "kind": 1}
"""What each budget counts of a dollar of use and five of storage, all of one person."""


@pytest.mark.parametrize("scope", BUDGETS_OF)
def test_storage_counts_on_the_budgets_of_who_keeps_it(
    spender: Spender, scope: BudgetScope
) -> None:
    person = ANNA if scope == "person" else BERT
    subjects: dict[BudgetScope, str] = {
        "tenant": "",
        "unit": str(spender.world.unit_id),
        "person": str(ANNA),
        "project": "llm",
        "kind": "training-7b",
    }
    terms = budget(
        amount=8,
        scope=scope,
        subject=subjects[scope],
        tenant_id=spender.tenant_id,
        at=spender.world.now,
    )
    set_spending_budget(spender.world.store, terms=terms, by=BY)
    bid = spender.bid(hours=1, project="llm", kind="training-7b", user=BERT)
    spender.charge(bid, hours=1, at=NOON)
    volume_id = spender.volume(user=person)
    spender.store(volume_id, dollars=2, at=NOON - timedelta(days=1))
    spender.store(volume_id, dollars=3, at=NOON)
    spender.look()

    [standing] = queries.standings(
        SpendingBudgetRow.objects.all(), spender.world.store, now=spender.world.now
    )
    assert standing.spent == usd(BUDGETS_OF[scope]).nanos
    met = {row.at_ppm for row in SpendingCrossingRow.objects.all()}
    assert met == {at for at in (500_000,) if BUDGETS_OF[scope] * PPM >= 8 * at}


def test_what_storage_took_is_no_room_for_bids(spender: Spender) -> None:
    limited(spender, 8)
    spender.store(spender.volume(), dollars=5, at=NOON)
    spender.look()

    with pytest.raises(BudgetUsedUp):
        spender.bid(hours=4)
    spender.bid(hours=3)


def test_storage_is_told_apart_from_work(spender: Spender) -> None:
    bid = spender.bid(project="llm", user=ANNA)
    spender.charge(bid, hours=2, at=NOON)
    volume_id = spender.volume(user=ANNA)
    spender.store(volume_id, dollars=2, at=NOON - timedelta(days=1))
    spender.store(volume_id, dollars=3, at=NOON)
    spender.look()

    rows = queries.spending(actor(spender, "finance"), *MARCH)
    parts = {
        each.key: (each.spent_nanos, each.storage_nanos) for each in queries.spent_by(rows, "kind")
    }
    assert parts == {
        "storage": (usd(5).nanos, usd(5).nanos),
        "other": (usd(2).nanos, 0),
    }
    [anna] = queries.spent_by(rows, "person")
    assert (anna.spent_nanos, anna.storage_nanos) == (usd(7).nanos, usd(5).nanos)
    assert (anna.leases, anna.gpu_millis) == (1, 2 * 3_600_000)
    assert set(queries.leases_by(rows, "kind")) == {bid}
    [saved] = queries.saved_by_gpu(rows)
    assert saved.spent.spent_nanos == usd(2).nanos


def test_what_is_rented_from_a_cloud_counts_with_its_margin(spender: Spender) -> None:
    """A lease in a cloud is charged as any other: what the cloud takes is in it, and the rest."""
    limited(spender, 8)
    rented = UsageItem(sku="g5.xlarge", service_class="on-demand", provider="Cloud X")
    spender.charge(spender.bid(hours=4), hours=4, at=NOON, item=rented)
    spender.look()

    [standing] = queries.standings(
        SpendingBudgetRow.objects.all(), spender.world.store, now=spender.world.now
    )
    assert (standing.spent, standing.held) == (usd(4).nanos, 0)
