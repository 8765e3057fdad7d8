"""Invitations: who may make them, what a link lets in, and what it does not."""

from __future__ import annotations

import os
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from ledger import commands
from ledger.domain import tokens
from ledger.domain.ids import InvitationId, UserId
from ledger.domain.invitations import (
    AlreadyMember,
    InvitationExpired,
    InvitationForAnother,
    InvitationLifeOutOfRange,
    InvitationMadeBefore,
    InvitationTakenBack,
    InvitationUnknown,
    InvitationUsed,
)
from ledger.domain.parties import LastOperator, MemberUnknown, Tenant, tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from tests.conftest import NOON, SOMEBODY

ACME = tenant_id_of("acme")
ADA, BOB, EVE = (UserId(UUID(int=number)) for number in (2, 3, 4))
WEEK = timedelta(days=7)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    commands.register_tenant(made, slug="acme", title="Acme", currency="USD", by=SOMEBODY, now=NOON)
    admit(made, ADA, "operator")
    return made


def admit(store: MemoryStore, who: UserId, *roles: str) -> None:
    commands.admit_member(
        store,
        tenant_id=ACME,
        user_id=who,
        roles=roles,
        subscriber_id=None,
        by=SOMEBODY,
        now=NOON,
    )


def invite(
    store: MemoryStore, who: UserId, *roles: str, by: UserId = ADA, life: timedelta = WEEK
) -> InvitationId:
    made = InvitationId(uuid4())
    commands.invite_member(
        store,
        tenant_id=ACME,
        invitation_id=made,
        user_id=who,
        invited_by=by,
        roles=roles or ("consumer",),
        subscriber_id=None,
        by_mail=False,
        written=tokens.read(tokens.write("invite", os.urandom(32))),
        expires_at=NOON + life,
        by=SOMEBODY,
        now=NOON,
    )
    return made


def accept(
    store: MemoryStore, invitation: InvitationId, who: UserId, *, after: timedelta = timedelta(0)
) -> None:
    commands.accept_invitation(
        store,
        tenant_id=ACME,
        invitation_id=invitation,
        user_id=who,
        by=SOMEBODY,
        now=NOON + after,
    )


def revoke(store: MemoryStore, invitation: InvitationId) -> None:
    commands.revoke_invitation(
        store, tenant_id=ACME, invitation_id=invitation, by=SOMEBODY, now=NOON
    )


def roles_of(store: MemoryStore, who: UserId) -> frozenset[str]:
    tenant = load(store, Tenant, ACME)
    assert tenant is not None
    return frozenset(tenant.roles_of(who))


def test_an_invitation_lets_its_person_in_once(store: MemoryStore) -> None:
    invitation = invite(store, BOB, "consumer", "finance")

    accept(store, invitation, BOB)

    assert roles_of(store, BOB) == {"consumer", "finance"}
    with pytest.raises(InvitationUsed):
        accept(store, invitation, BOB)


def test_nobody_else_comes_in_by_it(store: MemoryStore) -> None:
    invitation = invite(store, BOB)

    with pytest.raises(InvitationForAnother):
        accept(store, invitation, EVE)
    with pytest.raises(InvitationUnknown):
        accept(store, InvitationId(uuid4()), BOB)


def test_what_was_revoked_or_is_over_lets_nobody_in(store: MemoryStore) -> None:
    revoked, late = invite(store, BOB), invite(store, EVE)

    revoke(store, revoked)
    revoke(store, revoked)

    with pytest.raises(InvitationTakenBack):
        accept(store, revoked, BOB)
    with pytest.raises(InvitationExpired):
        accept(store, late, EVE, after=WEEK)


def test_an_accepted_one_cannot_be_revoked(store: MemoryStore) -> None:
    invitation = invite(store, BOB)
    accept(store, invitation, BOB)

    with pytest.raises(InvitationUsed):
        revoke(store, invitation)


def test_another_invitation_ends_the_one_before(store: MemoryStore) -> None:
    first, second = invite(store, BOB, "operator"), invite(store, BOB, "consumer")

    with pytest.raises(InvitationTakenBack):
        accept(store, first, BOB)
    accept(store, second, BOB)
    assert roles_of(store, BOB) == {"consumer"}


@pytest.mark.parametrize("life", [timedelta(seconds=1), timedelta(days=31), -WEEK])
def test_its_time_has_bounds(store: MemoryStore, life: timedelta) -> None:
    with pytest.raises(InvitationLifeOutOfRange):
        invite(store, BOB, life=life)


def test_members_are_not_invited_and_a_link_changes_no_roles(store: MemoryStore) -> None:
    invitation = invite(store, BOB, "operator")
    admit(store, BOB, "consumer")

    with pytest.raises(AlreadyMember):
        invite(store, BOB)
    accept(store, invitation, BOB)

    assert roles_of(store, BOB) == {"consumer"}


@pytest.mark.parametrize("end", ["removed", "no operator any more"])
def test_who_stops_being_an_operator_leaves_no_link_behind(store: MemoryStore, end: str) -> None:
    admit(store, BOB, "operator")
    back_door, other = invite(store, EVE, "operator", by=BOB), invite(store, UserId(uuid4()))

    if end == "removed":
        commands.remove_member(store, tenant_id=ACME, user_id=BOB, by=SOMEBODY, now=NOON)
    else:
        admit(store, BOB, "consumer")

    with pytest.raises(InvitationTakenBack):
        accept(store, back_door, EVE)
    tenant = load(store, Tenant, ACME)
    assert tenant is not None and tenant.invitations[other].ended is None


def test_who_was_removed_does_not_come_back_by_an_old_link(store: MemoryStore) -> None:
    invitation = invite(store, BOB)
    admit(store, BOB, "consumer")

    commands.remove_member(store, tenant_id=ACME, user_id=BOB, by=SOMEBODY, now=NOON)

    with pytest.raises(InvitationTakenBack):
        accept(store, invitation, BOB)


def test_roles_are_changed_of_members_only_and_one_operator_stays(store: MemoryStore) -> None:
    def change(who: UserId, *roles: str) -> None:
        commands.change_member(
            store,
            tenant_id=ACME,
            user_id=who,
            roles=roles,
            subscriber_id=None,
            by=SOMEBODY,
            now=NOON,
        )

    with pytest.raises(MemberUnknown):
        change(BOB, "consumer")
    with pytest.raises(LastOperator):
        change(ADA, "consumer")
    admit(store, BOB, "operator")
    change(ADA, "consumer")
    assert roles_of(store, ADA) == {"consumer"}


def test_the_same_id_makes_one_invitation(store: MemoryStore) -> None:
    made = invite(store, BOB)
    with pytest.raises(InvitationMadeBefore):
        commands.invite_member(
            store,
            tenant_id=ACME,
            invitation_id=made,
            user_id=EVE,
            invited_by=ADA,
            roles=["operator"],
            subscriber_id=None,
            by_mail=False,
            written=tokens.read(tokens.write("invite", os.urandom(32))),
            expires_at=NOON + WEEK,
            by=SOMEBODY,
            now=NOON,
        )
