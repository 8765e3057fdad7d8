"""Bids that come at the same moment are placed together, and answered as each alone would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from config.web.front import PATH
from ledger.commands.money import placing_hold
from ledger.commands.tokens import revoke_token
from ledger.domain.accounts import Account
from ledger.domain.events import HoldPlaced
from ledger.domain.ids import TenantId, TokenId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, OutcomeUnknown, StoreUnavailable, Write, load
from ledger.eventstore.postgres import PostgresStore
from ledger.eventstore.together import Part
from ledger.following import names_of
from ledger.models import TokenBucket
from marketplace.commands import bids as bid_commands
from tests.access.world import Party, follow
from tests.marketplace.support.front_door import OWN, asked, at_once, party, placed, together

__all__ = ["party"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_many_at_once_are_placed_each_with_its_hold(party: Party) -> None:
    follow()
    ids = [str(uuid4()) for _ in range(9)]

    answers = at_once(party, [asked(party, bid_id=each) for each in ids])

    assert [each.status for each in answers] == [201] * 9
    assert [each.body["id"] for each in answers] == ids
    positions = [each.body["position"] for each in answers]
    assert positions == sorted(positions)
    assert [str(each) for each in placed()] == ids
    holds = default_store().read_all(only=names_of(HoldPlaced)).events
    found = {str(each.event.hold_id): each for each in holds if isinstance(each.event, HoldPlaced)}
    assert [found[each].position + 1 for each in ids] == positions
    assert {each.meta.actor for each in holds} == {f"user:{party.caller.user_id}"}
    left = [int(each.headers["ratelimit-remaining"]) for each in answers]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == 9


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {}),
        ({"bid_id": "6f0f4a2e-54a4-4a4e-9b3f-5d5a0e3b3a10"}, {}),
        ({"limit": "1000000"}, {}),
        ({"deadline": "2020-01-01T00:00:00Z"}, {}),
        ({"workload": {"kind": "no-such-kind"}}, {}),
        ({"cost_centre": "x\u0007"}, {}),
        ({"query": "gpu=H100 memory>=40GiB", "gpus": 2, "good_till": "fill-or-kill"}, {}),
        ({"currency": "EUR"}, {}),
        ({}, {"X_Request_ID": "6f0f4a2e-54a4-4a4e-9b3f-5d5a0e3b3a11"}),
    ],
)
def test_the_short_way_answers_as_the_ordinary_one(
    party: Party, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    follow()
    body = asked(party, **fields)
    [short] = together(party, [body], **headers)

    other = dict(body)
    if "bid_id" in other and short.status == 201:
        other["bid_id"] = str(uuid4())
    ordinary = party.caller.post(PATH, other, host="localhost", **headers)

    assert short.short
    assert short.status == ordinary.status_code, short.body
    theirs = {name.lower(): value for name, value in ordinary.headers.items()}
    assert set(short.headers) | {"vary"} == set(theirs) | {"vary"}
    for name in theirs.keys() - set(OWN):
        assert short.headers[name] == theirs[name], name
    assert shape(short.body) == shape(ordinary.json())
    if headers:
        assert short.headers["x-request-id"] == headers["X_Request_ID"]


def shape(body: Any) -> Any:
    """Return an answer without what differs between two requests."""
    return {
        name: value
        for name, value in body.items()
        if name not in ("id", "position", "request_id", "details")
    }


@pytest.mark.parametrize(
    ("fields", "headers", "token"),
    [
        ({"gpus": 0}, {}, None),
        ({"surprise": 1}, {}, None),
        ({"subscriber_id": str(uuid4())}, {}, None),
        ({"market": "main"}, {}, None),
        ({}, {"Idempotency_Key": "k 1"}, None),
        ({}, {"If_Match": '"1"'}, None),
        ({}, {"Cookie": "sessionid=1"}, None),
        ({}, {"Accept": "text/html"}, None),
        ({}, {"Content_Type": "text/plain"}, None),
        ({}, {"Host": "evil.example"}, None),
        ({}, {}, "offp_user_nonsense"),
    ],
)
def test_what_is_unusual_is_left_to_the_ordinary_way_with_nothing_done(
    party: Party, fields: dict[str, Any], headers: dict[str, str], token: str | None
) -> None:
    follow()

    [answer] = together(party, [asked(party, **fields)], token, **headers)

    assert (answer.short, answer.body) == (False, "ordinary")
    assert placed() == []
    assert not TokenBucket.objects.exists()


def test_one_that_is_wrong_is_refused_alone(party: Party) -> None:
    follow()
    bodies: list[Any] = [
        asked(party, limit=limit) for limit in ("400", "700", "0", "500", "200", "100")
    ]
    bodies.insert(2, b"{")

    answers = at_once(party, bodies)

    assert [each.status for each in answers] == [201, 409, 299, 422, 201, 409, 201]
    assert answers[1].body["code"] == "funds-insufficient"
    assert len(placed()) == 3
    account = load(PostgresStore(), Account, party.ids["account_id"])
    assert account is not None
    assert account.available.nanos == 0


def test_a_mistake_of_ours_in_one_costs_no_other(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow()
    bid_id = str(uuid4())

    def placing_with_a_mistake(**said: Any) -> Part:
        part = placing_hold(**said)
        if str(said["hold_id"]) != bid_id:
            return part

        def broken(account: Any) -> list[Any]:
            raise ZeroDivisionError

        return replace(part, decide=broken)

    monkeypatch.setattr(bid_commands, "placing_hold", placing_with_a_mistake)

    answers = together(party, [asked(party), asked(party, bid_id=bid_id), asked(party)])

    assert [(each.short, each.status) for each in answers] == [
        (True, 201),
        (True, 500),
        (True, 201),
    ]
    assert len(placed()) == 2


def test_the_same_bid_twice_at_once_is_one_bid(party: Party) -> None:
    follow()
    body = asked(party, bid_id=str(uuid4()), deadline=later())

    answers = at_once(party, [body, body, {**body, "gpus": 2}])

    assert [each.status for each in answers] == [201, 201, 409]
    assert answers[0].body == answers[1].body
    assert len(placed()) == 1


def later() -> str:
    return (timezone.now() + timedelta(hours=5)).isoformat()


def test_a_token_that_was_revoked_a_moment_ago_places_nothing(party: Party) -> None:
    follow()
    assert together(party, [asked(party)])[0].status == 201
    by = Meta(actor=f"user:{party.caller.user_id}", tenant_id=party.caller.tenant_id)
    revoke_token(
        default_store(),
        token_id=TokenId(party.caller.token_id),
        tenant_id=TenantId(party.caller.tenant_id),
        user_id=None,
        by=by,
        now=timezone.now(),
    )
    follow()

    [answer] = together(party, [asked(party)])

    assert not answer.short
    assert len(placed()) == 1


def test_an_empty_bucket_is_left_to_the_ordinary_way(party: Party, settings: Any) -> None:
    follow()
    now = timezone.now()
    caller = f"token:{party.caller.token_id}"
    TokenBucket.objects.create(caller=caller, micros=1_500_000, filled_at=now)
    settings.ENV = settings.ENV.__class__(throttle_per_minute=60)

    answers = at_once(party, [asked(party), asked(party), asked(party)])

    assert [each.short for each in answers] == [False] * 3
    assert TokenBucket.objects.get().micros == 1_500_000


@pytest.mark.parametrize("failure", [OutcomeUnknown, StoreUnavailable])
def test_a_reply_that_is_lost_places_nothing_twice(
    party: Party, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    follow()
    append_each, lost = PostgresStore.append_each, [True, True]

    def losing(self: PostgresStore, writes: Sequence[Write]) -> Any:
        done = append_each(self, writes)
        if lost and len(writes) > 2:
            lost.pop()
            raise failure
        return done

    monkeypatch.setattr(PostgresStore, "append_each", losing)

    answers = at_once(party, [asked(party) for _ in range(4)])

    assert [each.status for each in answers] == [201] * 4
    assert len(placed()) == 4
    assert {str(each) for each in placed()} == {each.body["id"] for each in answers}


def test_a_store_that_is_away_is_said_to_be_so(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow()

    def away(self: PostgresStore, writes: Sequence[Write]) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(PostgresStore, "append_each", away)

    answers = together(party, [asked(party), asked(party)])

    assert [(each.short, each.status) for each in answers] == [(True, 503)] * 2
    assert answers[0].headers["retry-after"]
    assert placed() == []


def test_a_connection_that_the_server_dropped_is_replaced(party: Party) -> None:
    follow()
    front_again = [asked(party)]
    assert together(party, front_again)[0].status == 201
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    answers = [together(party, front_again)[0] for _ in range(2)]

    assert answers[-1].status == 201
