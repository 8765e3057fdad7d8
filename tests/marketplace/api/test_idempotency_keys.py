"""An Idempotency-Key means the same by the short way of a bid and by the ordinary one."""

from __future__ import annotations

import pytest

from config.web.front import PATH
from ledger.rest import idempotency
from tests.access.world import Party, follow
from tests.marketplace.support.front_door import asked, at_once, party, placed, together

__all__ = ["party"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_with_a_key_it_is_placed_once_and_answered_alike_either_way(party: Party) -> None:
    follow()
    body = asked(party)
    [first] = together(party, [body], Idempotency_Key="k1")

    [again] = together(party, [body], Idempotency_Key="k1")
    ordinary = party.caller.post(PATH, body, Idempotency_Key="k1")
    other = party.caller.post(PATH, asked(party, gpus=2), Idempotency_Key="k1")

    assert (first.short, first.status, again.short) == (True, 201, False)
    assert (ordinary.status_code, ordinary.json()) == (201, first.body)
    assert ordinary["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "key-used-for-another")
    assert len(placed()) == 1


def test_a_key_that_the_ordinary_way_has_used_is_left_to_it(party: Party) -> None:
    follow()
    ordinary = party.caller.post(PATH, asked(party), Idempotency_Key="k1")

    [again] = together(party, [asked(party)], Idempotency_Key="k1")

    assert (ordinary.status_code, again.short) == (201, False)
    assert len(placed()) == 1


def test_of_two_that_come_together_with_one_key_one_is_placed(party: Party) -> None:
    follow()
    body = asked(party)

    answers = at_once(party, [body, body, body, body], ["k1", "k1", None, "k2"])

    assert [each.short for each in answers] == [True, False, True, True]
    assert len(placed()) == 3
    assert party.caller.post(PATH, body, Idempotency_Key="k1").json() == answers[0].body


def test_an_answer_that_was_not_kept_is_made_again(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process dies between the append and its answer."""
    follow()
    body = asked(party)
    with monkeypatch.context() as dying:
        dying.setattr(idempotency, "keep_each", lambda answers, now: None)
        [first] = at_once(party, [body], ["k1"])

    again = party.caller.post(PATH, body, Idempotency_Key="k1")

    assert (again.status_code, again.json()) == (201, first.body)
    assert len(placed()) == 1


def test_a_refusal_with_a_key_is_asked_again_for_the_same_body_only(party: Party) -> None:
    follow()
    dear, more = asked(party, limit="900"), asked(party, limit="901")
    assert at_once(party, [dear])[0].status == 201
    [refused] = at_once(party, [dear], ["k1"])

    again = party.caller.post(PATH, dear, Idempotency_Key="k1")
    other = party.caller.post(PATH, more, Idempotency_Key="k1")

    assert (refused.short, refused.status) == (True, 409)
    assert (again.status_code, again.json()["code"]) == (409, "funds-insufficient")
    assert other.json()["code"] == "key-used-for-another"
