"""Tenants, business units, members and roles: what is refused, and what must always hold."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import commands
from ledger.domain import parties
from ledger.domain.ids import SubscriberId, UserId
from ledger.domain.money import CurrencyUnknown
from ledger.domain.parties import PLATFORM_ID, ROLES, Tenant, tenant_id_of
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from tests.conftest import NOON, SOMEBODY

ACME = tenant_id_of("acme")
RESEARCH = SubscriberId(UUID(int=1))
ADA, BOB = UserId(UUID(int=2)), UserId(UUID(int=3))


def register(store: MemoryStore, slug: str = "acme", **terms: str) -> int:
    asked = {"title": "Acme", "currency": "USD", **terms}
    return commands.register_tenant(store, slug=slug, by=SOMEBODY, now=NOON, **asked)


def add(store: MemoryStore, subscriber_id: SubscriberId = RESEARCH, **terms: Any) -> int:
    asked = {"tenant_id": ACME, "title": "Research", "cost_centre": "R1", **terms}
    return commands.add_subscriber(
        store, subscriber_id=subscriber_id, by=SOMEBODY, now=NOON, **asked
    )


def admit(store: MemoryStore, user_id: UserId, *roles: str, **terms: Any) -> int:
    asked = {"subscriber_id": None, **terms}
    return commands.admit_member(
        store, tenant_id=ACME, user_id=user_id, roles=roles, by=SOMEBODY, now=NOON, **asked
    )


def remove(store: MemoryStore, user_id: UserId) -> int:
    return commands.remove_member(store, tenant_id=ACME, user_id=user_id, by=SOMEBODY, now=NOON)


def tenant(store: MemoryStore) -> Tenant:
    found = load(store, Tenant, ACME)
    assert found is not None
    return found


def test_asking_again_on_the_same_terms_changes_nothing(store: MemoryStore) -> None:
    once = [register(store), add(store), admit(store, ADA, "operator", "owner")]
    head = store.head()

    again = [register(store), add(store), admit(store, ADA, "owner", "operator")]

    assert store.head() == head
    assert len(again) == len(once)


def test_one_slug_is_one_organisation_and_only_platform_is_the_platform_s(
    store: MemoryStore,
) -> None:
    register(store)
    register(store, "platform", title="The market itself")

    with pytest.raises(parties.SlugTaken):
        register(store, title="Acme too")

    platform = load(store, Tenant, PLATFORM_ID)
    assert platform is not None
    assert platform.registered.is_platform
    assert not tenant(store).registered.is_platform


@pytest.mark.parametrize(
    ("slug", "terms", "refusal"),
    [
        ("ab", {}, parties.SlugUnreadable),
        ("Acme", {}, parties.SlugUnreadable),
        ("1acme", {}, parties.SlugUnreadable),
        ("acme-", {}, parties.SlugUnreadable),
        ("a" * 41, {}, parties.SlugUnreadable),
        ("acme\n", {}, parties.SlugUnreadable),
        ("acme", {"title": " "}, parties.TitleMissing),
        ("acme", {"title": "x" * 121}, parties.TitleMissing),
        ("acme", {"currency": "usd"}, CurrencyUnknown),
        ("acme", {"currency": "US$"}, CurrencyUnknown),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(
    store: MemoryStore, slug: str, terms: dict[str, str], refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal):
        register(store, slug, **terms)

    assert store.head() == 0


def test_two_units_do_not_share_a_cost_centre_or_an_id(store: MemoryStore) -> None:
    register(store)
    add(store)

    with pytest.raises(parties.CostCentreTaken):
        add(store, SubscriberId(UUID(int=8)), title="Others")
    with pytest.raises(parties.SubscriberIdTaken):
        add(store, cost_centre="R2")
    with pytest.raises(parties.CostCentreUnreadable):
        add(store, SubscriberId(UUID(int=8)), cost_centre=" ")


def test_nothing_happens_in_an_organisation_that_does_not_exist(store: MemoryStore) -> None:
    for ask in (add, lambda store: admit(store, ADA, "owner"), lambda store: remove(store, ADA)):
        with pytest.raises(parties.TenantUnknown):
            ask(store)


def test_a_member_acts_for_a_unit_of_the_same_organisation(store: MemoryStore) -> None:
    register(store)

    with pytest.raises(parties.SubscriberUnknown):
        admit(store, ADA, "consumer", subscriber_id=RESEARCH)
    add(store)
    admit(store, ADA, "consumer", subscriber_id=RESEARCH)

    assert tenant(store).members[ADA].subscriber_id == RESEARCH


@pytest.mark.parametrize("roles", [(), ("king",), ("owner", "king")])
def test_roles_are_a_closed_list(store: MemoryStore, roles: tuple[str, ...]) -> None:
    register(store)

    with pytest.raises(parties.RolesUnknown):
        admit(store, ADA, *roles)


def test_the_last_operator_stays(store: MemoryStore) -> None:
    register(store)
    admit(store, ADA, "operator")
    admit(store, BOB, "owner")

    with pytest.raises(parties.LastOperator):
        remove(store, ADA)
    with pytest.raises(parties.LastOperator):
        admit(store, ADA, "owner")
    admit(store, BOB, "operator")
    remove(store, ADA)

    assert set(tenant(store).members) == {BOB}


steps = st.tuples(
    st.sampled_from(["admit", "remove"]),
    st.integers(0, 3),
    st.sets(st.sampled_from(ROLES), min_size=1),
)


@given(st.lists(steps, max_size=25))
def test_members_are_as_last_admitted_and_an_operator_once_there_stays(
    wanted: list[tuple[str, int, set[str]]],
) -> None:
    store = MemoryStore()
    register(store)
    model: dict[UserId, frozenset[str]] = {}

    for verb, number, roles in wanted:
        who = UserId(uuid5(ACME, str(number)))
        try:
            if verb == "admit":
                admit(store, who, *sorted(roles))
                model[who] = frozenset(roles)
            else:
                remove(store, who)
                del model[who]
        except parties.LastOperator:
            assert [each for each in model.values() if "operator" in each] == [model[who]]
        except parties.MemberUnknown:
            assert who not in model

    state = tenant(store)
    assert {who: state.roles_of(who) for who in state.members} == model
