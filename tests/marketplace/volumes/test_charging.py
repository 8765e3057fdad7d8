"""Volumes are charged by what is in them, and no batching, repetition or delay changes a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID

import pytest
from django.conf import LazySettings
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from ledger.commands.money import set_budget
from ledger.domain.account_ids import fee_account, funds_account
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.events import AccountEvent, AccountOpened, StorageCharged
from ledger.domain.ids import AccountId, SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.storage import GIB_MONTH
from ledger.domain.storage_charges import charge_storage
from ledger.eventstore.port import load
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import DebtRow, PostingRow
from ledger.projections.money import MONEY
from marketplace.domain.volumes import charging
from marketplace.domain.volumes.events import VolumeCreated
from marketplace.domain.volumes.kept_time import SPANS_MAX, KeptTime, Terms, hour_of
from marketplace.domain.volumes.terms import GIB
from marketplace.domain.volumes.volume import Volume
from marketplace.storage.folder import FolderStorage
from marketplace.volumes import see_to_volumes
from tests.access.conftest import Caller
from tests.conftest import SOMEBODY
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import read
from tests.marketplace.support.over_http import unit as unit
from tests.marketplace.volumes.conftest import Keeping

NOW = datetime(2026, 1, 30, 12, tzinfo=UTC)
ID, PAYER = UUID(int=1), AccountId(UUID(int=4))


def account(*, overdraft_nanos: int | None = None) -> Account:
    opened = AccountOpened(
        account_id=PAYER,
        tenant_id=TenantId(UUID(int=2)),
        subscriber_id=None,
        kind="chargeback",
        title="Vision",
        currency="USD",
        overdraft_nanos=overdraft_nanos,
        at=NOW,
    )
    return Account.evolve(None, opened)


CREATED = VolumeCreated(
    volume_id=ID,
    tenant_id=TenantId(UUID(int=2)),
    subscriber_id=SubscriberId(UUID(int=3)),
    account_id=PAYER,
    cost_centre="CC-7",
    volume="data",
    quota_bytes=GIB,
    nanos_per_gib_month=1,
    currency="USD",
    expires_at=NOW + timedelta(days=30),
    user_id=None,
    at=NOW,
)
Said = tuple[int, int, int]
"""Seconds after the one before, bytes, price."""


def moments(steps: Sequence[Said]) -> list[datetime]:
    seconds = accumulate(step[0] for step in steps)
    return [NOW + timedelta(seconds=each) for each in seconds]


def volume_of(*steps: Said, known: datetime | None = None) -> Volume:
    """Return a volume of which that is kept, as it is known at a moment; None: all of it."""
    kept = KeptTime()
    for at, (_, size, price) in zip(moments(steps), steps, strict=True):
        if known is None or at <= known:
            kept = kept.after(at, size, Terms(price, PAYER, "USD", "CC-7"))
    return replace(Volume.evolve(None, CREATED), kept=kept)


def charged(
    payer: Account, volume: Volume, until: datetime
) -> tuple[Account, list[StorageCharged]]:
    """Charge an account as the loop does at a moment."""
    before = payer.stored.get(ID)
    pieces = charging.pieces_of(volume, account_id=PAYER, before=before, until=until)
    events = charge_storage(payer, pieces, platform_id=PLATFORM_ID, now=until)
    for event in events:
        told: AccountEvent = event
        payer = Account.evolve(payer, told)
    return payer, events


def owed(steps: Sequence[Said], until: datetime) -> int:
    """Reckon second by second's worth, in one sum, what a volume costs in all."""
    total, began = 0, moments(steps)
    for (_, size, price), at, after in zip(steps, began, [*began[1:], until], strict=True):
        seconds = max(0, int((min(after, until) - at).total_seconds()))
        total += seconds * size * price
    return total // GIB_MONTH


sizes = st.sampled_from((0, 1, 7, 4_096, GIB // 3, GIB, 16_384 * GIB))
prices = st.sampled_from((0, 1, 50_000_000, 9_999_999_999_999))
steps = st.lists(st.tuples(st.integers(0, 200_000), sizes, prices), min_size=1, max_size=8)
looks = st.lists(st.integers(0, 40 * 24), min_size=1, max_size=12)


@trying(max_examples=300)
@given(steps=steps, looks=looks)
def test_no_batching_changes_what_a_volume_costs(steps: list[Said], looks: list[int]) -> None:
    payer, latest = account(), 0
    for hours in looks:  # also backwards, and twice
        latest = max(latest, hours)
        known = volume_of(*steps, known=NOW + timedelta(hours=latest) + charging.SETTLES)
        payer, events = charged(payer, known, NOW + timedelta(hours=hours))
        for event in events:
            assert sum(line.nanos for line in event.postings) == 0
            assert event.charged.nanos > 0
            window = event.window
            assert window.starts_at.month == (window.ends_at - timedelta(seconds=1)).month
    ends = NOW + timedelta(hours=latest)
    volume = volume_of(*steps, known=ends + charging.SETTLES)
    many = -payer.total.nanos
    once, _ = charged(account(), volume, ends)

    assert many == -once.total.nanos == owed(steps, ends)
    assert charged(payer, volume, ends)[1] == []


# Minutes apart, as checkpoints are, and at times months.
often = st.lists(
    st.tuples(
        st.sampled_from((1, 59, 60, 61, 3_599, 90_000, 40 * 86_400)),
        st.sampled_from((0, 1, 7, 4_096, GIB // 3, GIB)),
        prices,
    ),
    min_size=1,
    max_size=400,
)


@trying(max_examples=60, suppress_health_check=[HealthCheck.large_base_example])
@given(steps=often, before=st.integers(0, 400))
def test_what_is_summed_up_is_the_plain_sum(steps: list[Said], before: int) -> None:
    last = moments(steps)[-1]
    ends = hour_of(last) + timedelta(hours=1)
    some = moments(steps[: before + 1])[-1]
    payer, _ = charged(account(), volume_of(*steps, known=some), charging.charged_until(some))
    volume = volume_of(*steps)
    payer, _ = charged(payer, volume, ends)

    assert -payer.total.nanos == owed(steps, ends)
    assert len(volume.kept.spans) <= SPANS_MAX
    payer, events = charged(account(), volume, ends)
    assert -payer.total.nanos == owed(steps, ends)
    assert all(each.byte_seconds < 2**63 > each.carried for each in events)


def test_a_hundred_thousand_versions_take_no_more_room_than_the_days_they_came_in() -> None:
    steps = [(60, GIB + number % 1_000, 50_000_000) for number in range(100_000)]
    volume = volume_of(*steps)
    ends = hour_of(moments(steps)[-1])
    spans, pieces = (
        volume.kept.spans,
        charging.pieces_of(volume, account_id=PAYER, before=None, until=ends),
    )

    assert len(spans) <= 70 + 4, "a day each, and the last hours"
    assert len(pieces) <= 71
    assert -charged(account(), volume, ends)[0].total.nanos == owed(steps, ends)


def test_what_units_took_turns_to_pay_is_charged_to_each() -> None:
    kept, others = KeptTime(), AccountId(UUID(int=5))
    for number in range(1_000):
        payer = (PAYER, others)[number % 2]
        at = NOW + timedelta(minutes=7 * number)
        kept = kept.after(at, GIB, Terms(GIB_MONTH, payer, "USD", str(number)))
    volume = replace(Volume.evolve(None, CREATED), kept=kept)
    until = hour_of(NOW + timedelta(minutes=7_000))
    told = [
        charging.pieces_of(volume, account_id=each, before=None, until=until)
        for each in (PAYER, others)
    ]
    minutes = [
        sum(each.byte_seconds * each.nanos_per_gib_month + each.beside for each in pieces)
        // (60 * GIB * GIB_MONTH)
        for pieces in told
    ]

    assert charging.payers_of(volume) == [PAYER, others]
    assert sum(minutes) == (until - NOW) // timedelta(minutes=1)
    assert abs(minutes[0] - minutes[1]) <= 7
    assert len(volume.kept.spans) <= SPANS_MAX


def test_what_was_told_late_of_an_hour_that_is_charged_is_set_right_by_the_next_charge() -> None:
    early = volume_of((0, GIB, 50_000_000))
    payer, _ = charged(account(), early, NOW + timedelta(hours=10))
    late = volume_of((0, GIB, 50_000_000), (9 * 3_600, 2 * GIB, 50_000_000))
    payer, _ = charged(payer, late, NOW + timedelta(hours=11))

    assert -payer.total.nanos == 13 * 3_600 * GIB * 50_000_000 // GIB_MONTH


def test_a_month_of_a_gib_costs_its_price_to_the_nano_unit() -> None:
    volume = volume_of((0, GIB, 50_000_000))
    payer, events = charged(account(), volume, NOW + timedelta(hours=730))

    assert payer.total == Money(-50_000_000)
    assert {each.window.starts_at.month for each in events} == {1, 2, 3}
    assert len(events) == len({each.entry_id for each in events}) == 31
    fees = fee_account(PLATFORM_ID, "USD")
    assert {line.account_id for each in events for line in each.postings} == {PAYER, fees}


def test_what_an_account_cannot_pay_is_charged_once_it_can() -> None:
    volume = volume_of((0, GIB, 730 * 50_000_000))
    payer, events = charged(account(overdraft_nanos=2_000_000_000), volume, NOW + timedelta(days=3))

    assert len(events) == 2, "as many days as it has money for"
    with pytest.raises(FundsInsufficient):
        charged(payer, volume, NOW + timedelta(days=3))
    richer = replace(payer, overdraft_nanos=None)
    assert charged(richer, volume, NOW + timedelta(days=3))[0].total.nanos == -3_600_000_000


# --- as the loop does it, with accounts and rows -------------------------------------------------


@pytest.fixture
def mine(ada: Caller, unit: str, kept: FolderStorage, settings: LazySettings) -> Keeping:
    settings.ENV = replace(settings.ENV, volume_price="7300")
    made = Keeping(ada, kept, unit)
    assert made.create().status_code == 201
    assert made.bring(0, train=b"x" * 2**20).status_code == 201
    return made


def look(now: datetime) -> None:
    see_to_volumes(PostgresStore(), now=now)
    read()


def total_of(mine: Keeping) -> int:
    found = load(PostgresStore(), Account, funds_account(SubscriberId(UUID(mine.unit)), "USD"))
    assert found is not None
    return found.total.nanos


routed = pytest.mark.urls("tests.marketplace.support.routes")


@pytest.mark.django_db
@routed
def test_the_unit_pays_by_the_hour_and_looking_twice_charges_once(mine: Keeping) -> None:
    begins = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    look(begins + timedelta(hours=1, minutes=6))
    first = total_of(mine)
    look(begins + timedelta(hours=1, minutes=7))
    assert total_of(mine) == first < 0
    look(begins + timedelta(hours=3, minutes=6))
    hours = 7_300_000_000_000 // 730 // 1024 * 2
    assert first - total_of(mine) == pytest.approx(hours, abs=2)
    shown = mine.shown()
    assert shown["charged_until"] == (begins + timedelta(hours=3)).isoformat().replace(
        "+00:00", "Z"
    )
    assert float(shown["charged"]) == pytest.approx(-total_of(mine) / 10**9)
    assert mine.caller.delete("/api/v1/volumes/data").status_code == 200
    read()
    look(begins + timedelta(days=2))
    after = total_of(mine)
    look(begins + timedelta(days=9))
    assert total_of(mine) == after, "what is gone costs nothing"


@pytest.mark.django_db
@routed
def test_a_volume_that_is_not_paid_is_told_read_only_and_comes_back(mine: Keeping) -> None:
    store, now = PostgresStore(), timezone.now()
    payer = funds_account(SubscriberId(UUID(mine.unit)), "USD")

    def budget(nanos: int | None) -> Any:
        return set_budget(
            store, account_id=payer, overdraft_nanos=nanos, may_raise=True, by=SOMEBODY, now=now
        )

    budget(0)
    look(now + timedelta(hours=3))
    told = mine.shown()
    assert told["unpaid_since"] is not None
    assert total_of(mine) == 0
    assert mine.bring(1, train=b"y").status_code == 201, "there is a notice first"
    look(now + timedelta(days=13))
    assert mine.shown()["expired_because"] == ""
    look(now + timedelta(days=15))
    assert mine.shown()["expired_because"] == "unpaid"
    assert mine.bring(2, train=b"z").json()["code"] == "volume-over"
    budget(None)
    look(now + timedelta(days=16))
    paid = mine.shown()
    assert (paid["expired_because"], paid["unpaid_since"], paid["version"]) == ("", None, 2)
    assert total_of(mine) < 0
    assert mine.bring(2, train=b"z").status_code == 201


@pytest.mark.django_db
@routed
def test_the_debt_for_storage_is_the_platforms_and_the_books_balance(mine: Keeping) -> None:
    look(timezone.now() + timedelta(days=2))
    while follow_projections(PostgresStore(), [MONEY]):
        pass
    lines = PostingRow.objects.filter(kind="storage")
    debt = DebtRow.objects.filter(debtor_id=mine.caller.tenant_id, creditor_id__isnull=True)

    assert sum(line.nanos for line in lines) == 0
    assert -sum(line.nanos for line in lines.filter(nanos__lt=0)) == -total_of(mine) > 0
    assert sum(each.nanos for each in debt) == -total_of(mine)
    assert set(lines.values_list("reference", flat=True)) == {"volume data"}
