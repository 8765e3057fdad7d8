"""Tokens: their text, what they may carry, how long they work."""

from __future__ import annotations

import os
import string
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import commands
from ledger.domain import tokens
from ledger.domain.ids import HostId, SubscriberId, TokenId, UserId
from ledger.domain.parties import MemberUnknown, tenant_id_of
from ledger.domain.refusal import Refusal, Unauthenticated
from ledger.domain.tokens import Kind
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from tests.conftest import NOON, SOMEBODY

ACME = tenant_id_of("acme")
ADA = UserId(uuid5(ACME, "ada"))
BASE62 = string.digits + string.ascii_letters

kinds = st.sampled_from(["user", "host"])
entropy = st.binary(min_size=32, max_size=64)


@given(kinds, entropy)
def test_a_token_reads_back_with_its_kind_and_hash(kind: Kind, seed: bytes) -> None:
    text = tokens.write(kind, seed)

    written = tokens.read(text)

    assert len(text) == 49
    assert written.kind == kind
    assert text.startswith(written.prefix)
    assert len(written.prefix) == 16
    assert written == tokens.read(text)


@given(kinds, entropy, st.data())
def test_a_mistyped_character_is_noticed_without_the_database(
    kind: Kind, seed: bytes, data: st.DataObject
) -> None:
    text = tokens.write(kind, seed)
    place = data.draw(st.integers(len("offp_user_"), len(text) - 1))
    typed = data.draw(st.sampled_from(BASE62))
    mistyped = text[:place] + typed + text[place + 1 :]

    if mistyped == text or text[place] == "_":
        return
    with pytest.raises(Unauthenticated):
        tokens.read(mistyped)


@given(st.text())
def test_any_other_text_is_refused_as_no_token(text: str) -> None:
    with pytest.raises(tokens.TokenMalformed):
        tokens.read(text)


@given(entropy, entropy)
def test_two_tokens_differ_where_their_randomness_does(first: bytes, second: bytes) -> None:
    same = int.from_bytes(first) % 62**32 == int.from_bytes(second) % 62**32

    assert (tokens.write("user", first) == tokens.write("user", second)) == same


def market() -> MemoryStore:
    """An organisation with one consumer."""
    store = MemoryStore()
    commands.register_tenant(
        store, slug="acme", title="Acme", currency="USD", by=SOMEBODY, now=NOON
    )
    unit = SubscriberId(uuid5(ACME, "research"))
    commands.add_subscriber(
        store,
        tenant_id=ACME,
        subscriber_id=unit,
        title="Research",
        cost_centre="R1",
        by=SOMEBODY,
        now=NOON,
    )
    commands.admit_member(
        store,
        tenant_id=ACME,
        user_id=ADA,
        roles=["consumer"],
        subscriber_id=unit,
        by=SOMEBODY,
        now=NOON,
    )
    return store


def issue(store: MemoryStore, name: str = "first", **terms: object) -> TokenId:
    token_id = TokenId(uuid5(ACME, name))
    asked: dict[str, object] = {
        "user_id": ADA,
        "title": "laptop",
        "scopes": ["bids:read", "bids:write"],
        "expires_at": None,
        "by": SOMEBODY,
        "written": tokens.read(tokens.write("user", os.urandom(32))),
        **terms,
    }
    commands.issue_token(store, token_id=token_id, tenant_id=ACME, now=NOON, **asked)  # type: ignore[arg-type]
    return token_id


def test_a_token_works_ninety_days_where_nothing_is_said() -> None:
    store = market()

    token_id = issue(store)

    token = load(store, tokens.Token, token_id)
    assert token is not None
    assert token.issued.expires_at == NOON + timedelta(days=90)
    assert token.issued.scopes == ("bids:read", "bids:write")


@pytest.mark.parametrize(
    ("terms", "refusal"),
    [
        ({"expires_at": NOON + timedelta(days=365, seconds=1)}, tokens.TokenLifeOutOfRange),
        ({"expires_at": NOON}, tokens.TokenLifeOutOfRange),
        ({"scopes": []}, tokens.TokenWithoutScope),
        ({"scopes": ["bids:delete"]}, tokens.TokenWithoutScope),
        ({"scopes": ["offers:write"]}, tokens.ScopeBeyondRoles),
        ({"scopes": ["agent"]}, tokens.ScopeBeyondRoles),
        ({"scopes": ["admin"]}, tokens.ScopeBeyondRoles),
        ({"title": "  "}, tokens.TokenTitleMissing),
        ({"user_id": UserId(UUID(int=7))}, MemberUnknown),
    ],
)
def test_a_token_that_goes_too_far_is_refused_and_nothing_is_written(
    terms: dict[str, object], refusal: type[Refusal]
) -> None:
    store = market()
    before = store.head()

    with pytest.raises(refusal):
        issue(store, "far", **terms)

    assert store.head() == before


def test_a_token_makes_no_token_that_can_do_more_or_lives_longer() -> None:
    store = market()
    soon = NOON + timedelta(days=2)
    maker = issue(store, scopes=["bids:read"], expires_at=soon)
    by = replace(SOMEBODY, token_id=maker)

    with pytest.raises(tokens.BeyondOwnToken):
        issue(store, "more", by=by, scopes=["bids:read", "bids:write"])
    with pytest.raises(tokens.BeyondOwnToken):
        issue(store, "longer", by=by, scopes=["bids:read"], expires_at=soon + timedelta(seconds=1))
    child = load(store, tokens.Token, issue(store, "child", by=by, scopes=["bids:read"]))

    assert child is not None
    assert child.issued.expires_at == soon


def test_a_repeated_request_does_not_hand_out_a_secret_that_never_worked() -> None:
    store = market()
    by = replace(SOMEBODY, command_id=UUID(int=1))
    issue(store, by=by)

    with pytest.raises(tokens.TokenMadeBefore):
        issue(store, by=by)


def test_a_token_is_revoked_once_and_only_by_its_holder_or_an_operator() -> None:
    store = market()
    token_id = issue(store)
    somebody_else = UserId(UUID(int=9))

    def revoke(user_id: UserId | None, tenant: str = "acme") -> int:
        return commands.revoke_token(
            store,
            token_id=token_id,
            tenant_id=tenant_id_of(tenant),
            user_id=user_id,
            by=SOMEBODY,
            now=NOON,
        )

    with pytest.raises(tokens.TokenUnknown):
        revoke(somebody_else)
    with pytest.raises(tokens.TokenUnknown):
        revoke(None, tenant="other")
    first = revoke(ADA)

    assert revoke(None) == first


def test_a_host_s_token_is_good_for_its_agent_and_nothing_else() -> None:
    store = market()
    host_id = HostId(UUID(int=5))
    token_id = TokenId(UUID(int=6))

    commands.issue_host_token(
        store,
        token_id=token_id,
        tenant_id=ACME,
        host_id=host_id,
        written=tokens.read(tokens.write("host", os.urandom(32))),
        title="rack 1",
        expires_at=None,
        by=SOMEBODY,
        now=NOON,
    )

    token = load(store, tokens.Token, token_id)
    assert token is not None
    assert (token.issued.host_id, token.issued.user_id) == (host_id, None)
    assert token.issued.scopes == ("agent",)
