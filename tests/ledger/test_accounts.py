"""Accounts: what may be set aside and taken, and what the same request means twice."""

from __future__ import annotations

import pytest

from ledger import commands
from ledger.domain import account_ids, accounts, holds
from ledger.domain.events import HoldReleased, UsageCaptured
from ledger.domain.ids import EntryId
from ledger.domain.money import AmountTooLarge, Money, Rate
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import FUNDS, HOLD, OTHER_OWNER, OWNER, PLATFORM, hours, usd

MILLIS = 3_600_000


@pytest.fixture
def funded(store: MemoryStore) -> MemoryStore:
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(100))
    return store


def test_available_is_total_less_held(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))

    state = book.account(funded)

    assert (state.total, state.held, state.available) == (usd(100), usd(30), usd(70))


def test_a_prepaid_account_refuses_a_hold_it_does_not_cover(funded: MemoryStore) -> None:
    book.hold(funded, usd(70))
    head = funded.head()

    with pytest.raises(accounts.FundsInsufficient) as refused:
        book.hold(funded, usd(30) + Money(1), hold_id=book.hold_named(2))

    assert refused.value.details["spendable"] == usd(30)
    assert funded.head() == head


def test_an_overdraft_that_is_unset_is_without_limit_and_zero_is_not(store: MemoryStore) -> None:
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    unlimited = book.hold(store, usd(1_000_000))

    other = MemoryStore()
    book.open_funds(other, kind="chargeback", overdraft_nanos=0)

    assert unlimited
    with pytest.raises(accounts.FundsInsufficient):
        book.hold(other, Money(1))


def test_a_cost_centre_may_spend_its_budget_and_no_more(store: MemoryStore) -> None:
    book.open_funds(store, kind="chargeback", overdraft_nanos=usd(50).nanos)
    book.hold(store, usd(50))

    with pytest.raises(accounts.FundsInsufficient):
        book.hold(store, Money(1), hold_id=book.hold_named(2))


def test_a_prepaid_account_cannot_be_without_limit(store: MemoryStore) -> None:
    with pytest.raises(accounts.PrepaidUnlimited):
        book.open_funds(store, overdraft_nanos=None)

    assert store.head() == 0


@pytest.mark.parametrize("nanos", [-1, 9_000_000_000 * 10**9 + 1])
def test_an_overdraft_limit_must_be_sensible(store: MemoryStore, nanos: int) -> None:
    with pytest.raises((accounts.OverdraftNegative, AmountTooLarge)):
        book.open_funds(store, overdraft_nanos=nanos)


def test_the_same_account_opens_once_and_on_the_same_terms(store: MemoryStore) -> None:
    book.open_funds(store)
    head = store.head()

    book.open_funds(store)

    assert store.head() == head
    with pytest.raises(accounts.AccountOpenedOtherwise):
        book.open_funds(store, title="Another")


def test_funds_of_one_entry_arrive_once(funded: MemoryStore) -> None:
    book.fund(funded, usd(100))

    assert book.account(funded).total == usd(100)


@pytest.mark.parametrize("other", [{"money": usd(101)}, {"reference": "invoice 8"}])
def test_an_entry_id_cannot_be_used_for_something_else(
    funded: MemoryStore, other: dict[str, object]
) -> None:
    terms: dict[str, object] = {"money": usd(100), "reference": "invoice 7", **other}

    with pytest.raises(accounts.EntryRecordedOtherwise):
        book.fund(funded, terms["money"], reference=str(terms["reference"]))  # type: ignore[arg-type]

    assert book.account(funded).total == usd(100)


def test_one_request_id_with_another_amount_is_refused(store: MemoryStore) -> None:
    """akash console#3449: a retried top-up made a second payment."""
    book.open_funds(store)
    request = Meta(actor="user:test", command_id=book.WORLD)
    entry_id = EntryId(book.WORLD)

    def top_up(money: Money) -> None:
        commands.add_funds(
            store,
            account_id=FUNDS,
            entry_id=entry_id,
            money=money,
            reference="r",
            platform_id=PLATFORM,
            by=request,
            now=NOON,
        )

    top_up(usd(5))
    top_up(usd(5))

    with pytest.raises(accounts.EntryRecordedOtherwise):
        top_up(usd(6))
    assert book.account(store).total == usd(5)


@pytest.mark.parametrize("money", [Money(0), Money(-1), Money(5, "EUR"), Money(10**19)])
def test_funds_must_be_a_sensible_amount_in_the_accounts_currency(
    funded: MemoryStore, money: Money
) -> None:
    with pytest.raises((accounts.AmountNotPositive, accounts.CurrencyMismatch, AmountTooLarge)):
        book.fund(funded, money, entry="another")

    assert book.account(funded).total == usd(100)


def test_a_total_never_outgrows_what_can_be_counted(funded: MemoryStore) -> None:
    with pytest.raises(AmountTooLarge):
        book.fund(funded, usd(9_000_000_000), entry="another")


def test_only_paying_accounts_take_holds(store: MemoryStore) -> None:
    book.open_everybody(store)

    with pytest.raises(accounts.AccountCannotPay):
        book.hold(store, usd(1), account=account_ids.earnings_account(OWNER, "USD"))


def test_an_unknown_account_and_hold_are_unknown(funded: MemoryStore) -> None:
    with pytest.raises(accounts.AccountUnknown):
        book.hold(funded, usd(1), account=account_ids.funds_account(book.UNIT, "EUR"))
    with pytest.raises(holds.HoldUnknown):
        book.release(funded)
    with pytest.raises(holds.HoldUnknown):
        book.capture(funded, hours(0), MILLIS)


def test_a_hold_is_placed_once_even_after_it_was_resized(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.resize(funded, usd(20))

    book.hold(funded, usd(30))

    assert book.account(funded).held == usd(20)
    with pytest.raises(holds.HoldPlacedOtherwise):
        book.hold(funded, usd(20))
    with pytest.raises(holds.HoldPlacedOtherwise):
        book.hold(funded, usd(30), purpose="bid:2")


def test_a_hold_grows_only_into_what_is_available(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.resize(funded, usd(100))

    with pytest.raises(accounts.FundsInsufficient):
        book.resize(funded, usd(100) + Money(1))

    assert book.account(funded).available == usd(0)


def test_a_hold_cannot_shrink_below_what_was_captured(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)
    captured = PRICE_OF_AN_HOUR

    with pytest.raises(holds.HoldBelowCaptured):
        book.resize(funded, captured - Money(1))
    book.resize(funded, captured)

    state = book.account(funded)
    assert (state.total, state.held) == (usd(100) - captured, usd(0))


PRICE_OF_AN_HOUR = book.PRICE.charge(MILLIS)


def test_a_capture_moves_the_charge_from_the_hold_to_owner_and_platform(
    funded: MemoryStore,
) -> None:
    book.hold(funded, usd(30))

    book.capture(funded, hours(0), MILLIS)

    state, totals = book.account(funded), book.totals(funded)
    fee = PRICE_OF_AN_HOUR.share(book.FEE_PPM)
    assert state.held == usd(30) - PRICE_OF_AN_HOUR
    assert state.available == usd(70)
    assert totals[FUNDS] == (usd(100) - PRICE_OF_AN_HOUR).nanos
    assert totals[account_ids.fee_account(PLATFORM, "USD")] == fee.nanos
    earned = totals[account_ids.earnings_account(OWNER, "USD")]
    assert earned == (PRICE_OF_AN_HOUR - fee).nanos


def test_a_window_is_charged_once(funded: MemoryStore) -> None:
    """yagna#2970: the last chunk was paid twice."""
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)
    book.capture(funded, hours(0), MILLIS)
    book.release(funded)
    book.capture(funded, hours(0), MILLIS)

    assert book.account(funded).total == usd(100) - PRICE_OF_AN_HOUR


@pytest.mark.parametrize(
    "other",
    [
        {"gpu_millis": MILLIS - 1},
        {"price": Rate(1)},
        {"fee_ppm": 1},
        {"cost_centre": "CC-2"},
        {"owners": ((OTHER_OWNER, MILLIS),)},
    ],
)
def test_a_charged_window_cannot_be_charged_otherwise(
    funded: MemoryStore, other: dict[str, object]
) -> None:
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)
    head = funded.head()

    with pytest.raises(accounts.EntryRecordedOtherwise):
        book.capture(funded, hours(0), **{"gpu_millis": MILLIS, **other})  # type: ignore[arg-type]

    assert funded.head() == head


def test_windows_of_a_lease_may_not_overlap(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)

    with pytest.raises(holds.UsageOverlaps):
        book.capture(funded, hours(0, 1), MILLIS)


@pytest.mark.parametrize(
    "other", [{"price": Rate(1)}, {"fee_ppm": 1}, {"lease_id": book.lease_named(2)}]
)
def test_a_hold_serves_one_lease_at_one_price_and_fee(
    funded: MemoryStore, other: dict[str, object]
) -> None:
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)

    with pytest.raises(holds.UsageTermsChanged):
        book.capture(funded, hours(1), MILLIS, **other)  # type: ignore[arg-type]


def test_a_capture_never_exceeds_the_hold(funded: MemoryStore) -> None:
    book.hold(funded, PRICE_OF_AN_HOUR)

    with pytest.raises(holds.HoldExceeded):
        book.capture(funded, hours(0), MILLIS + 1)

    book.capture(funded, hours(0), MILLIS)
    assert book.account(funded).held == usd(0)


@pytest.mark.parametrize(
    ("gpu_millis", "owners", "fee_ppm"),
    [
        (-1, ((OWNER, -1),), 0),
        (5, ((OWNER, 4),), 0),
        (5, ((OWNER, 6), (OTHER_OWNER, -1)), 0),
        (5, ((OWNER, 2), (OWNER, 3)), 0),
        (10**16, ((OWNER, 10**16),), 0),
        (5, ((OWNER, 5),), 1_000_001),
        (5, ((OWNER, 5),), -1),
    ],
)
def test_use_that_cannot_be_is_refused(
    funded: MemoryStore, gpu_millis: int, owners: tuple[tuple[object, int], ...], fee_ppm: int
) -> None:
    book.hold(funded, usd(30))

    with pytest.raises(holds.UsageUnreadable):
        book.capture(funded, hours(0), gpu_millis, owners=owners, fee_ppm=fee_ppm)  # type: ignore[arg-type]


def test_a_window_without_use_is_not_an_entry(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    head = funded.head()

    book.capture(funded, hours(0), 0, owners=())

    assert funded.head() == head


def test_releasing_gives_back_the_rest_once(funded: MemoryStore) -> None:
    """HAMi#1880: released twice, and use went below zero."""
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)

    first, second = book.release(funded), book.release(funded)

    released = [r.event for r in funded.read_all().events if isinstance(r.event, HoldReleased)]
    assert [event.money for event in released] == [usd(30) - PRICE_OF_AN_HOUR]
    assert first == second
    assert book.account(funded).held == usd(0)


def test_a_released_hold_cannot_be_resized(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.release(funded)

    with pytest.raises(holds.HoldClosed):
        book.resize(funded, usd(31))


def test_late_use_is_taken_from_what_is_available(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.release(funded)

    book.capture(funded, hours(0), MILLIS)

    state = book.account(funded)
    assert (state.total, state.held) == (usd(100) - PRICE_OF_AN_HOUR, usd(0))


def test_late_use_still_keeps_within_the_hold(funded: MemoryStore) -> None:
    book.hold(funded, PRICE_OF_AN_HOUR)
    book.capture(funded, hours(0), MILLIS)
    book.release(funded)

    with pytest.raises(holds.HoldExceeded):
        book.capture(funded, hours(1), MILLIS)


def test_late_use_never_takes_what_another_hold_set_aside(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.release(funded)
    book.hold(funded, usd(100), hold_id=book.hold_named("all"))

    with pytest.raises(accounts.FundsInsufficient):
        book.capture(funded, hours(0), MILLIS)
    book.release(funded, hold_id=book.hold_named("all"))
    book.capture(funded, hours(0), MILLIS)

    assert book.account(funded).total == usd(100) - PRICE_OF_AN_HOUR


def test_an_owner_pays_compensation_once_for_a_lease(funded: MemoryStore) -> None:
    def pay(money: Money) -> None:
        commands.pay_compensation(
            funded,
            account_id=FUNDS,
            lease_id=book.LEASE,
            owner_id=OWNER,
            money=money,
            by=SOMEBODY,
            now=NOON,
        )

    pay(usd(2))
    pay(usd(2))

    assert book.account(funded).available == usd(102)
    assert book.totals(funded)[account_ids.earnings_account(OWNER, "USD")] == -usd(2).nanos
    with pytest.raises(accounts.EntryRecordedOtherwise):
        pay(usd(3))


def test_a_clouds_cost_is_counted_once_for_a_reference(funded: MemoryStore) -> None:
    def cost(money: Money) -> None:
        commands.record_cost(
            funded, platform_id=PLATFORM, money=money, reference="i-1", by=SOMEBODY, now=NOON
        )

    cost(usd(4))
    cost(usd(4))

    assert book.totals(funded)[account_ids.burst_account(PLATFORM, "USD")] == -usd(4).nanos
    assert book.totals(funded)[account_ids.cash_account(PLATFORM, "USD")] == -usd(96).nanos
    with pytest.raises(accounts.EntryRecordedOtherwise):
        cost(usd(5))


def test_a_gangs_charge_is_split_to_the_nano(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    owners = ((OWNER, MILLIS), (OTHER_OWNER, 2 * MILLIS + 1))

    book.capture(funded, hours(0), 3 * MILLIS + 1, owners=owners)

    (entry,) = [entry for entry in book.entries(funded) if isinstance(entry, UsageCaptured)]
    earned = [
        book.totals(funded)[account_ids.earnings_account(owner, "USD")] for owner, _ in owners
    ]
    assert sum(earned) == (entry.charged - entry.fee).nanos
    assert earned[0] * (2 * MILLIS + 1) == pytest.approx(earned[1] * MILLIS, rel=1e-8)


def test_the_events_of_an_account_can_be_read_back(funded: MemoryStore) -> None:
    book.hold(funded, usd(30))
    book.capture(funded, hours(0), MILLIS)

    (captured,) = [r for r in funded.read_all().events if r.type == UsageCaptured.name]

    fresh = captured._replace()
    assert fresh.event == captured.event
    assert isinstance(fresh.event, UsageCaptured)
    assert fresh.event.hold_id == HOLD
    assert fresh.event.item.list_price == Rate(2_100_000_000)
