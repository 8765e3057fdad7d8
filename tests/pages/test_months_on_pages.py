"""Closing a month on pages: the checklist, the exports, and a second person to open it again."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.test import Client

from config.site.pages.finance.steps import MENDED
from config.wiring import CLOSING_CHECKS
from ledger import closing
from ledger.commands import add_funds
from ledger.commands import closing as commands
from ledger.domain.closing import Check, Point
from ledger.domain.ids import EntryId, UserId
from ledger.domain.money import Money
from ledger.domain.periods import Period
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def last_month(world: World) -> Period:
    """Return a month that is over."""
    return Period.of(world.now.replace(day=1) - timedelta(days=1))


@pytest.fixture(autouse=True)
def no_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "_installed", ())


def post(client: Client, world: World, period: Period, step: str, **form: str) -> str:
    answer = client.post(f"/finance/months/{period}/{step}", form, follow=False)
    world.settle()
    if answer.status_code == 302:
        answer = client.get(answer["Location"])
    return html(answer.content)


def freeze(world: World, now: datetime) -> None:
    closing.freeze_closed(world.store, now=now)
    world.settle()


def test_a_month_is_closed_step_by_step(world: World, last_month: Period) -> None:
    joan = world.member(PLATFORM, "finance")
    page = html(joan.get(f"/finance/months/{last_month}").content)
    assert "Trial balance" in page and "in order" in page

    assert f"Close {last_month}" in post(joan, world, last_month, "soft-close")
    assert "being written" in post(joan, world, last_month, "close")
    freeze(world, world.now)

    page = html(joan.get(f"/finance/months/{last_month}").content)
    assert "FOCUS 1.2" in page and "sha256" in page
    listed = html(joan.get("/finance/months").content)
    assert "Closed" in listed and "as of event" in listed


def test_what_is_left_to_do_is_said_and_the_month_stays_open(
    world: World, last_month: Period, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = "6ad5d524-3a7c-562e-af4c-e0eb710069f5"
    left = Check(
        name="use-rated",
        title="Use and gaps",
        passed=False,
        words="2 leases wait for hosts.",
        left=2,
        points=(Point("Lease 6ad5d524 waits.", "lease", lease), Point("Another one.")),
    )
    monkeypatch.setattr(closing, "_installed", (lambda period, now: left,))
    joan = world.member(PLATFORM, "finance")
    page = post(joan, world, last_month, "soft-close")
    assert f'<a href="/leases/{lease}">Lease 6ad5d524 waits.</a>' in page
    assert 'data-label="Open points">2<' in page and "1 to do" in page
    assert 'href="/ops/health"' in page and "Another one." in page
    assert '<li class="now" aria-current="step"><b>Checked</b>' in page

    page = post(joan, world, last_month, "close")

    assert "Not everything that counts in the month is in order yet." in page
    assert "2 leases wait for hosts." in page


def test_opening_a_month_again_takes_somebody_else(world: World, last_month: Period) -> None:
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    post(joan, world, last_month, "soft-close")
    post(joan, world, last_month, "close")

    assert "This field is required" in post(joan, world, last_month, "ask", reason="")
    page = post(joan, world, last_month, "ask", reason="the rate was wrong")
    assert "Somebody else has to approve it" in page and "the rate was wrong" in page
    assert "cannot approve it as well" in post(joan, world, last_month, "approve")

    page = post(oscar, world, last_month, "approve")
    assert f"{last_month} is open again" in page and "the rate was wrong" in page


def test_every_check_says_where_it_is_mended(
    world: World, last_month: Period, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "_installed", CLOSING_CHECKS)
    names = {each.name for each in closing.checklist(last_month, now=world.now)}

    assert names == set(MENDED)


def test_what_changed_since_a_month_was_closed_before_is_told(
    world: World, last_month: Period
) -> None:
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    post(joan, world, last_month, "soft-close")
    waits = post(joan, world, last_month, "close")
    assert f'hx-get="/finance/months/{last_month}/exports"' in waits
    assert "What changed" not in waits
    freeze(world, world.now)
    frozen = html(joan.get(f"/finance/months/{last_month}/exports").content)
    assert "FOCUS 1.2" in frozen and "hx-get" not in frozen
    post(joan, world, last_month, "ask", reason="a payment was missing")
    post(oscar, world, last_month, "approve")
    add_funds(
        world.store,
        account_id=world.account_id,
        entry_id=EntryId(uuid4()),
        money=Money(5_000_000_000),
        reference="transfer 2",
        platform_id=world.tenant(PLATFORM),
        by=BY,
        now=last_month.window.starts_at,
    )
    world.settle()

    page = html(joan.get(f"/finance/months/{last_month}").content)
    assert "What changed since it was closed before" in page and "Added (1)" in page
    assert "a payment was missing" in page and "sha256 before" not in page
    [came] = re.findall(r'href="(/finance/entries[^"]*)"', page)[-1:]
    assert "$5.00" in html(oscar.get(came.replace("&amp;", "&")).content)

    post(joan, world, last_month, "soft-close")
    assert "being written again" in post(joan, world, last_month, "close")
    freeze(world, world.now)
    page = html(joan.get(f"/finance/months/{last_month}").content)
    assert "differ" in page and "sha256 before" in page and "Added (1)" in page
    was = re.search(
        r'href="(/finance/export/focus\?[^"]*)"\s*download title="([0-9a-f]{64})"', page
    )
    assert was is not None
    data = b"".join(oscar.get(was[1].replace("&amp;", "&")))
    assert hashlib.sha256(data).hexdigest() == was[2]


def test_whoever_only_reads_sees_which_months_are_closed(world: World, last_month: Period) -> None:
    user = UserId(world.tenant(PLATFORM))
    commands.soft_close_period(world.store, last_month, user_id=user, by=BY, now=world.now)
    commands.close_period(world.store, last_month, checks=[], user_id=user, by=BY, now=world.now)
    world.settle()
    grace = world.member(CONSUMER, "finance")

    assert "Closed" in html(grace.get(f"/finance?period={last_month}").content)
    assert grace.get("/finance/months").status_code == 200
    assert grace.get(f"/finance/months/{last_month}").status_code == 403
    assert grace.post(f"/finance/months/{last_month}/close").status_code == 403
