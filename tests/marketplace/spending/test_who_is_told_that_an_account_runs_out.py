"""That an account runs out is told once at each level: to finance people and those of its unit."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

from ledger import commands
from ledger.domain.depletion_events import AccountRunsOut
from ledger.domain.events import Role
from ledger.domain.ids import SubscriberId, UserId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent
from marketplace.money_notices import tell_of_account
from tests.conftest import NOON, SOMEBODY
from tests.contracts.stored import example

ACME, UNIT, OTHER = tenant_id_of("acme"), SubscriberId(uuid4()), SubscriberId(uuid4())
PEOPLE: dict[UserId, tuple[Role, SubscriberId | None]] = {
    UserId(UUID(int=1)): ("finance", None),
    UserId(UUID(int=2)): ("consumer", UNIT),
    UserId(UUID(int=3)): ("consumer", OTHER),
    UserId(UUID(int=4)): ("owner", None),
}


def test_finance_people_and_the_unit_are_told_once_of_each_level() -> None:
    store = MemoryStore()
    commands.register_tenant(
        store, slug="acme", title="Acme", currency="USD", by=SOMEBODY, now=NOON
    )
    for unit in (UNIT, OTHER):
        commands.add_subscriber(
            store,
            tenant_id=ACME,
            subscriber_id=unit,
            title="Vision",
            cost_centre=str(unit)[:8],
            by=SOMEBODY,
            now=NOON,
        )
    for user_id, (role, unit_id) in PEOPLE.items():
        commands.admit_member(
            store,
            tenant_id=ACME,
            user_id=user_id,
            roles=(role,),
            subscriber_id=unit_id,
            by=SOMEBODY,
            now=NOON,
        )
    short = replace(example(AccountRunsOut), tenant_id=ACME, level=80)
    commands.open_account(
        store,
        account_id=short.account_id,
        tenant_id=ACME,
        subscriber_id=UNIT,
        kind="chargeback",
        title="Vision",
        currency="USD",
        overdraft_nanos=None,
        by=SOMEBODY,
        now=NOON,
    )
    for event in (short, replace(short, level=95)):
        store.append(
            f"account-watch-{short.account_id}",
            [NewEvent(uuid4(), event)],
            expected=Expect.ANY,
            by=SOMEBODY,
        )

    for _ in range(2):
        for recorded in store.read_all(limit=1_000).events:
            if isinstance(recorded.event, AccountRunsOut):
                tell_of_account(recorded, store)

    events = [one.event for one in store.read_all(limit=1_000).events]
    told = [event for event in events if isinstance(event, NoticeGiven)]
    assert [set(each.user_ids) for each in told] == [{UserId(UUID(int=1)), UserId(UUID(int=2))}] * 2
