"""People are told something once, and each finds it in their own inbox."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from ledger import commands
from ledger.access import Actor
from ledger.domain.events import Role
from ledger.domain.holds import TextUnreadable
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.notice_events import NoticeGiven, Topic
from ledger.domain.notices import NoticeUnreadable, To, TopicUnknown
from ledger.domain.parties import TenantUnknown, tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.following import follow_projections
from ledger.inbox import mark_all_read, mark_read, wish
from ledger.models import Checkpoint, InboxRow
from ledger.projections import PROJECTIONS
from ledger.queries import notices as asked
from tests.conftest import NOON, SOMEBODY

ACME, OTHER = tenant_id_of("acme"), tenant_id_of("other")
UNIT = SubscriberId(uuid4())
OLGA, FINN, CARA, OWEN = (UserId(uuid4()) for _ in range(4))


def found(store: MemoryStore) -> None:
    for slug, tenant_id in (("acme", ACME), ("other", OTHER)):
        commands.register_tenant(
            store,
            slug=slug,
            title=slug.title(),
            currency="USD",
            by=SOMEBODY,
            now=NOON,
        )
        admit(store, tenant_id, OLGA, "operator")
    commands.add_subscriber(
        store,
        tenant_id=ACME,
        subscriber_id=UNIT,
        title="Vision",
        cost_centre="V-1",
        by=SOMEBODY,
        now=NOON,
    )
    admit(store, ACME, FINN, "finance")
    admit(store, ACME, CARA, "consumer", unit=UNIT)
    admit(store, ACME, OWEN, "owner")


def admit(
    store: MemoryStore,
    tenant_id: TenantId,
    user_id: UserId,
    *roles: Role,
    unit: SubscriberId | None = None,
) -> None:
    commands.admit_member(
        store,
        tenant_id=tenant_id,
        user_id=user_id,
        subscriber_id=unit,
        roles=roles,
        by=SOMEBODY,
        now=NOON,
    )


def give(
    store: MemoryStore,
    to: To,
    *,
    topic: Topic = "money",
    key: str = "low:1",
    title: str = "An account runs low",
    body: str = "It has 1.00 USD left.",
    link: str = "/finance",
) -> None:
    commands.give_notice(
        store,
        to=to,
        topic=topic,
        key=key,
        title=title,
        body=body,
        link=link,
        facts={"available_nanos": "1000000000"},
        by=SOMEBODY,
        now=NOON,
    )


def given(store: MemoryStore) -> list[NoticeGiven]:
    return [
        e for one in store.read_all(limit=1_000).events if isinstance(e := one.event, NoticeGiven)
    ]


@pytest.fixture
def store(store: MemoryStore) -> MemoryStore:
    found(store)
    return store


def test_the_same_key_tells_the_same_people_once(store: MemoryStore) -> None:
    give(store, To(tenant_id=ACME))
    give(store, To(tenant_id=ACME), title="Said differently")
    assert [notice.title for notice in given(store)] == ["An account runs low"]

    give(store, To(tenant_id=ACME), key="low:2")
    give(store, To(tenant_id=OTHER))
    give(store, To(tenant_id=ACME), topic="budget")
    assert len(given(store)) == 4


@pytest.mark.parametrize(
    ("to", "people"),
    [
        (To(tenant_id=ACME), {OLGA, FINN}),
        (To(tenant_id=ACME, roles=("owner",)), {OWEN}),
        (To(tenant_id=ACME, subscriber_id=UNIT), {CARA}),
        (To(tenant_id=ACME, subscriber_id=UNIT, roles=("finance",)), {CARA, FINN}),
        (To(tenant_id=ACME, user_ids=(CARA, UserId(uuid4()))), {CARA}),
    ],
)
def test_those_are_told_who_are_meant(store: MemoryStore, to: To, people: set[UserId]) -> None:
    give(store, to)
    assert set(given(store)[0].user_ids) == people


def test_where_nobody_is_left_operators_are_told(store: MemoryStore) -> None:
    give(store, To(tenant_id=ACME, user_ids=(UserId(uuid4()),)))
    assert given(store)[0].user_ids == (OLGA,)


@pytest.mark.parametrize("link", ["https://example.org/", "//example.org/x", "/\\example.org", "x"])
def test_a_notice_leads_to_pages_of_this_market_only(store: MemoryStore, link: str) -> None:
    with pytest.raises(NoticeUnreadable):
        give(store, To(tenant_id=ACME), link=link)


def test_what_no_person_could_read_is_refused(store: MemoryStore) -> None:
    with pytest.raises(NoticeUnreadable):
        give(store, To(tenant_id=ACME), title=" ")
    with pytest.raises(NoticeUnreadable):
        give(store, To(tenant_id=ACME), body="")
    with pytest.raises(TextUnreadable):
        give(store, To(tenant_id=ACME), title="two\nlines")
    with pytest.raises(TextUnreadable):
        give(store, To(tenant_id=ACME), body="x" * 4_001)
    with pytest.raises(TopicUnknown):
        give(store, To(tenant_id=ACME), topic="weather")  # type: ignore[arg-type]  # what if
    with pytest.raises(TenantUnknown):
        give(store, To(tenant_id=tenant_id_of("nobody")))
    assert given(store) == []


def actor(user_id: UserId, tenant_id: TenantId = ACME) -> Actor:
    return Actor(tenant_id=tenant_id, user_id=user_id)


def follow(store: MemoryStore) -> None:
    while follow_projections(store, PROJECTIONS):
        pass


def titles(who: Actor, *, unread: bool = False) -> list[str]:
    return [row.title for row in asked.inbox(who, unread=unread)]


@pytest.mark.django_db
def test_each_finds_in_their_inbox_what_they_were_told_the_newest_first(store: MemoryStore) -> None:
    give(store, To(tenant_id=ACME), title="First")
    give(store, To(tenant_id=ACME, subscriber_id=UNIT), title="For Vision")
    give(store, To(tenant_id=ACME, roles=("finance",)), key="2", title="For finance")
    give(store, To(tenant_id=OTHER), title="For others")
    follow(store)

    assert titles(actor(FINN)) == ["For finance", "First"]
    assert titles(actor(OLGA)) == ["First"]
    assert titles(actor(CARA)) == ["For Vision"]
    assert titles(actor(OLGA, OTHER)) == ["For others"]
    assert titles(actor(OWEN)) == []


@pytest.mark.django_db
def test_what_is_read_stays_read_for_that_person_only(store: MemoryStore) -> None:
    for number in range(3):
        give(store, To(tenant_id=ACME), key=str(number), title=f"No. {number}")
    follow(store)
    finn, olga = actor(FINN), actor(OLGA)
    assert asked.unread_count(finn) == 3
    assert asked.unread_count(finn, at_most=2) == 2

    first = given(store)[0].notice_id
    mark_read(finn, first, now=NOON)
    mark_read(finn, first, now=NOON + timedelta(hours=1))
    assert titles(finn, unread=True) == ["No. 2", "No. 1"]
    assert [row.read_at for row in asked.inbox(finn)] == [None, None, NOON]
    assert asked.unread_count(olga) == 3

    assert mark_all_read(finn, now=NOON) == 2
    assert mark_all_read(finn, now=NOON) == 0
    assert asked.unread_count(finn) == 0
    with pytest.raises(asked.NoticeUnknown):
        mark_read(actor(OWEN), first, now=NOON)


@pytest.mark.django_db
def test_a_topic_that_a_person_does_not_want_is_not_in_their_inbox(store: MemoryStore) -> None:
    give(store, To(tenant_id=ACME))
    give(store, To(tenant_id=ACME, roles=("finance",)), topic="invoice", title="An invoice")
    follow(store)
    finn = actor(FINN)

    wish(finn, "invoice", in_inbox=False, by_mail=True, now=NOON)
    assert titles(finn) == ["An account runs low"]
    assert asked.unread_count(finn) == 1
    assert asked.wishes(FINN)["invoice"] == asked.Wish(in_inbox=False, by_mail=True)

    wish(finn, "invoice", in_inbox=True, by_mail=False, now=NOON)
    assert titles(finn) == ["An invoice", "An account runs low"]


@pytest.mark.django_db
def test_a_rebuild_leaves_what_was_read(store: MemoryStore) -> None:
    give(store, To(tenant_id=ACME))
    follow(store)
    mark_all_read(actor(FINN), now=NOON)
    before = list(InboxRow.objects.order_by("pk").values_list("inbox_id", "title"))
    with transaction.atomic():
        InboxRow.objects.all().delete()
        Checkpoint.objects.filter(name="ledger.notices").update(position=0)
    follow(store)

    assert list(InboxRow.objects.order_by("pk").values_list("inbox_id", "title")) == before
    assert asked.unread_count(actor(FINN)) == 0
