"""An organisation says whether its work in clouds moves home."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from bursting.commands.homing import rules_of, set_home_policy
from bursting.domain.home_moves import HomeRules
from bursting.domain.home_policy import MarginOutOfRange
from ledger.eventstore.memory import MemoryStore
from tests.access.conftest import Caller, admit
from tests.bursting.bids_and_offers import NOON
from tests.bursting.coming_home import HOME, Homely
from tests.bursting.market import TENANT
from tests.marketplace.support.market import somebody
from tests.marketplace.support.site import TENANT as CONSUMER


def say(store: Any, *, moves: bool = True, margin: int | None = None) -> None:
    set_home_policy(
        store, tenant_id=TENANT, moves=moves, margin_percent=margin, by=somebody(), now=NOON
    )


def test_it_is_the_platforms_until_somebody_says_otherwise() -> None:
    store = MemoryStore()
    assert rules_of(store, TENANT, HOME) == HOME

    say(store, margin=25)
    assert rules_of(store, TENANT, HOME) == replace(HOME, margin_ppm=250_000)
    say(store, moves=False)
    assert rules_of(store, TENANT, HOME) == replace(HOME, is_on=False)


def test_nobody_switches_on_what_the_platform_has_not() -> None:
    store = MemoryStore()
    say(store, moves=True, margin=0)

    assert not rules_of(store, TENANT, replace(HOME, is_on=False)).is_on


@pytest.mark.parametrize("margin", [-1, 101])
def test_a_margin_is_a_percentage(margin: int) -> None:
    with pytest.raises(MarginOutOfRange):
        say(MemoryStore(), margin=margin)


def test_work_of_an_organisation_that_says_so_stays() -> None:
    site = Homely(home=HomeRules())
    site.burst()
    set_home_policy(
        site.store,
        tenant_id=CONSUMER,
        moves=False,
        margin_percent=None,
        by=somebody(),
        now=site.now,
    )
    site.wait(hours=1)
    site.offer("free", at="0.2")
    site.save(site.in_cloud)
    assert not site.look()

    set_home_policy(
        site.store,
        tenant_id=CONSUMER,
        moves=True,
        margin_percent=None,
        by=somebody(),
        now=site.now + timedelta(seconds=1),
    )
    assert site.look()


def ask(method: str, caller: Caller, body: object = None) -> Any:
    return Client().generic(
        method,
        "/api/v1/burst/home-policy",
        data=b"" if body is None else json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}", "Idempotency-Key": str(uuid4())},
    )


@pytest.mark.django_db
@pytest.mark.urls("tests.bursting.routes")
def test_over_http_who_administers_sets_it_and_others_read_it() -> None:
    boss = admit("ada-labs", "operator")
    reader = admit("eve-works", "consumer")

    assert ask("GET", reader).json() == {
        "moves": True,
        "margin_percent": None,
        "platform_moves": True,
        "platform_margin_percent": 10,
    }
    assert ask("PUT", reader, {"moves": False}).status_code == 403
    assert ask("PUT", boss, {"moves": True, "margin_percent": 101}).status_code == 422
    assert ask("PUT", boss, {"moves": False, "margin_percent": 20}).status_code == 200
    said = ask("GET", boss).json()
    assert (said["moves"], said["margin_percent"]) == (False, 20)
