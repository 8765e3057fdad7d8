"""The bell, the inbox, how one is told, and webhooks, on pages."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from django.test import Client

from ledger import commands, queries, webhooks
from ledger.access import Actor
from ledger.delivering import put_out
from ledger.digests import digest_time
from ledger.domain.ids import UserId
from ledger.domain.notice_events import NoticeGiven, Topic
from ledger.domain.notices import To
from ledger.models import DeliveryRow, InboxRow, NoticeRead, Person, WebhookRow
from tests.pages.browser import browsing, enter, faults, served
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, OWNER, World


def tell(world: World, title: str, *, topic: Topic = "money", link: str = "/finance") -> UUID:
    commands.give_notice(
        world.store,
        to=To(tenant_id=world.tenant(CONSUMER), roles=("operator", "finance")),
        topic=topic,
        key=title,
        title=title,
        body="Language models has 12.50 USD left, which lasts until Thursday.\n\nTop it up.",
        link=link,
        by=BY,
        now=datetime.now(UTC),
    )
    world.settle()
    return InboxRow.objects.filter(title=title).values_list("notice_id", flat=True)[0]


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return html(answer.content)


@pytest.fixture
def olga(world: World) -> Client:
    return world.member(CONSUMER, "operator", "finance")


@pytest.mark.django_db
def test_an_inbox_without_notices_says_what_will_be_there(olga: Client) -> None:
    assert "No notices yet" in text(olga, "/notifications")
    assert 'aria-label="Notifications"' in text(olga, "/settings")


@pytest.mark.django_db
def test_the_bell_counts_until_a_notice_is_opened(world: World, olga: Client) -> None:
    first, _ = tell(world, "One account runs low"), tell(world, "Another runs low")
    for address in ("/settings", "/notifications/bell"):
        assert "Notifications, 2 unread" in text(olga, address)

    opened = olga.get(f"/notifications/{first}")
    assert (opened.status_code, opened["Location"]) == (302, "/finance")
    assert "Notifications, 1 unread" in text(olga, "/notifications/bell")
    unread = text(olga, "/notifications?show=unread")
    assert "Another runs low" in unread and "One account runs low" not in unread

    olga.post("/notifications/read")
    assert 'aria-label="Notifications"' in text(olga, "/notifications/bell")
    assert "Nothing here" in text(olga, "/notifications?show=unread")


@pytest.mark.django_db
def test_a_topic_alone_is_shown_and_marked(world: World, olga: Client) -> None:
    tell(world, "An account runs low")
    tell(world, "A budget is used up", topic="budget")
    shown = text(olga, "/notifications?topic=budget")
    assert "A budget is used up" in shown and "An account runs low" not in shown
    assert "An account runs low" in text(olga, "/notifications?topic=nonsense")

    olga.post("/notifications/read", {"topic": "budget"})
    assert NoticeRead.objects.count() == 1


@pytest.mark.django_db
def test_another_person_cannot_open_a_notice(world: World, olga: Client) -> None:
    told = tell(world, "An account runs low")
    assert world.member(CONSUMER, "consumer").get(f"/notifications/{told}").status_code == 404
    assert world.member(OWNER, "operator").get(f"/notifications/{told}").status_code == 404
    assert not NoticeRead.objects.exists()


@pytest.mark.django_db
def test_one_chooses_how_one_is_told(world: World, olga: Client) -> None:
    page = text(olga, "/settings/notifications")
    assert "no mail server" in page
    assert "Money by e-mail" in page

    olga.cookies["zone"] = "Europe/Berlin"
    said = {"inbox": ["budget"], "mail-money": "once", "mail-quota": "daily", "hour": "7"}
    answer = olga.post("/settings/notifications", said)
    assert answer.status_code == 302
    wishes = queries.wishes(Person.objects.get(email__startswith="operator").id)
    assert (wishes["money"].in_inbox, wishes["money"].by_mail) == (False, True)
    assert (wishes["budget"].in_inbox, wishes["budget"].by_mail) == (True, False)
    assert (wishes["quota"].by_mail, wishes["quota"].daily) == (True, True)
    assert digest_time(Person.objects.get(email__startswith="operator").id) == (7, "Europe/Berlin")
    tell(world, "An account runs low")
    assert "An account runs low" not in text(olga, "/notifications")


def set_up(olga: Client, **form: object) -> WebhookRow:
    said = {"url": "https://hooks.example/offpeak", "topics": ["money"], **form}
    answer = olga.post("/settings/webhooks", said)
    assert answer.status_code == 200
    assert "whsec_" in html(answer.content)
    assert answer["Cache-Control"] == "no-store"
    return WebhookRow.objects.get()


@pytest.mark.django_db
def test_an_operator_sets_up_tries_and_removes_a_webhook(world: World, olga: Client) -> None:
    assert "No webhooks yet" in text(olga, "/settings/webhooks")
    row = set_up(olga)
    here = f"/settings/webhooks/{row.webhook_id}"
    assert "hooks.example" in text(olga, "/settings/webhooks")
    assert "Nothing was posted yet" in text(olga, here)
    assert "whsec_" not in text(olga, here)

    olga.post(f"{here}/test")
    assert "Waiting" in text(olga, here)
    assert "whsec_" in html(olga.post(f"{here}/secret").content)
    assert "The secret before signs beside the new one" in text(olga, here)

    assert olga.post(f"{here}/remove").status_code == 302
    assert not WebhookRow.objects.exists() and not DeliveryRow.objects.exists()


@pytest.mark.django_db
def test_a_webhook_that_is_off_says_why_and_is_switched_on(world: World, olga: Client) -> None:
    row = set_up(olga)
    here = f"/settings/webhooks/{row.webhook_id}"
    now = datetime.now(UTC)
    WebhookRow.objects.update(off_at=now, off_reason="It failed for 3 days.", failures=9)
    assert "It failed for 3 days." in text(olga, here)
    assert "switched off" in html(olga.post(f"{here}/test", follow=True).content)

    olga.post(f"{here}/on")
    assert "It failed for 3 days." not in text(olga, here)


@pytest.mark.django_db
@pytest.mark.parametrize("url", ["http://hooks.example/", "https://10.0.0.1/", ""])
def test_an_address_that_cannot_be_is_refused_in_place(olga: Client, url: str) -> None:
    answer = olga.post("/settings/webhooks", {"url": url})
    assert answer.status_code == 422
    assert not WebhookRow.objects.exists()


@pytest.mark.django_db
def test_who_is_no_operator_has_no_webhooks(world: World) -> None:
    grace = world.member(CONSUMER, "finance")
    assert grace.get("/settings/webhooks").status_code == 403
    assert "/settings/webhooks" not in text(grace, "/settings/notifications")


@pytest.mark.django_db(transaction=True)
def test_pages_of_notices_are_accessible_and_fit(committed_store: None, tmp_path: Path) -> None:
    world = World()
    world.found()
    olga = world.member(CONSUMER, "operator", "finance")
    for number in range(3):
        tell(world, f"Language models runs low, warning {number}")
    first = InboxRow.objects.order_by("position")[0]
    olga.get(f"/notifications/{first.notice_id}")
    row = set_up(olga, url="https://hooks.example/a/rather/long/address/of/a/receiver/of/ours")
    actor = Actor(
        tenant_id=world.tenant(CONSUMER),
        user_id=UserId(first.user_id),
        roles=frozenset({"operator"}),
    )
    webhooks.send_test(actor, row.webhook_id, now=datetime.now(UTC))
    for recorded in world.store.read_all(limit=10_000).events:
        if isinstance(recorded.event, NoticeGiven):
            put_out(recorded.event, now=datetime.now(UTC))
    pictures = os.environ.get("PICTURES")
    with served(tmp_path / "site.log") as address, browsing() as (context, page, complaints):
        enter(context, address, olga.cookies)
        for name, where in {
            "inbox": "/notifications",
            "told": "/settings/notifications",
            "webhooks": "/settings/webhooks",
            "webhook": f"/settings/webhooks/{row.webhook_id}",
        }.items():
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(address + where)
            page.wait_for_load_state("networkidle")
            if pictures:
                page.screenshot(path=f"{pictures}/{name}-light.png")
            assert faults(page, "light") == []
            if pictures:
                page.emulate_media(color_scheme="dark")
                page.set_viewport_size({"width": 390, "height": 900})
                page.screenshot(path=f"{pictures}/{name}-dark.png")
                page.emulate_media(color_scheme="light")
        assert complaints == []
