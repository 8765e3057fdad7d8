"""People are told of an account that runs low, once a day."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from ledger import commands
from ledger.domain.events import Role
from ledger.domain.ids import SubscriberId, UserId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.following import follow_projections
from ledger.models import AccountRow, UsageChargeRow
from ledger.projections.money import MONEY
from ledger.telling import tell_of_low_accounts
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import FUNDS, hours, usd

SOON = NOON + timedelta(hours=2)


def follow(store: MemoryStore) -> None:
    while follow_projections(store, [MONEY]):
        pass


def notices(store: MemoryStore) -> list[NoticeGiven]:
    events = [one.event for one in store.read_all(limit=1_000).events]
    return [event for event in events if isinstance(event, NoticeGiven)]


@pytest.mark.django_db
def test_an_account_that_runs_low_is_told_of_once_a_day(store: MemoryStore) -> None:
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(10))
    book.capture(store, hours(0), 3_600_000)
    follow(store)
    # Whose account it is, this test says: those of the book have no organisation in the store.
    acme, unit = tenant_id_of("acme"), SubscriberId(uuid4())
    AccountRow.objects.filter(pk=FUNDS).update(tenant_id=acme, subscriber_id=unit)
    people: list[tuple[UserId, Role, SubscriberId | None]] = [
        (UserId(uuid4()), "finance", None),
        (UserId(uuid4()), "consumer", unit),
        (UserId(uuid4()), "consumer", None),
        (UserId(uuid4()), "owner", None),
    ]
    commands.register_tenant(
        store, slug="acme", title="Acme", currency="USD", by=SOMEBODY, now=NOON
    )
    commands.add_subscriber(
        store,
        tenant_id=acme,
        subscriber_id=unit,
        title="Vision",
        cost_centre="V",
        by=SOMEBODY,
        now=NOON,
    )
    for user_id, role, of_unit in [(UserId(uuid4()), "operator", None), *people]:
        commands.admit_member(
            store,
            tenant_id=acme,
            user_id=user_id,
            subscriber_id=of_unit,
            roles=(role,),
            by=SOMEBODY,
            now=NOON,
        )
    assert tell_of_low_accounts(store, now=SOON) == 0

    UsageChargeRow.objects.update(
        tenant_id=acme, charged_nanos=AccountRow.objects.get(pk=FUNDS).available_nanos + 1
    )
    for _ in range(2):
        assert tell_of_low_accounts(store, now=SOON) == 1
    [notice] = notices(store)
    assert {people[0][0], people[1][0]} < set(notice.user_ids)
    assert not {people[2][0], people[3][0]} & set(notice.user_ids)
    assert notice.topic == "money"
    assert notice.title.endswith("runs low")
    assert "can be set aside" in notice.body

    tell_of_low_accounts(store, now=SOON + timedelta(hours=12))
    assert len(notices(store)) == 2, "another day by UTC"
