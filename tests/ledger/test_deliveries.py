"""Notices go out at least once, each receiver by itself, and what came of it is on record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import pytest

from config.env import Env
from ledger import commands, webhooks
from ledger.access import Actor
from ledger.access.actors import RoleMissing
from ledger.delivering import Delivering, overdue
from ledger.domain.deliveries import (
    FAILING_MAX,
    KEPT,
    STALE_AFTER,
    DeliveryUnknown,
    TooManyWebhooks,
    UrlUnfit,
    WebhookOff,
    WebhookUnknown,
    sign,
)
from ledger.domain.ids import UserId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.notices import To, TopicUnknown
from ledger.domain.parties import tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.inbox import wish
from ledger.models import AttemptRow, DeliveryRow, Person, WebhookRow
from ledger.senders.mail import MailSender
from ledger.senders.port import Message, Outcome
from ledger.senders.webhooks import WebhookSender
from ledger.vault import default_vault
from tests.conftest import NOON, SOMEBODY
from tests.ledger.receivers import Receiver, mail_server, receiving, use_mail

pytestmark = pytest.mark.django_db
ACME, OTHER = tenant_id_of("acme"), tenant_id_of("other")
PATIENCE_SECONDS = 60


class Site:
    """A market whose time is told, and its outbox."""

    def __init__(self, store: MemoryStore, receiver: Receiver) -> None:
        self.store, self.receiver, self.now = store, receiver, NOON
        self.people: dict[str, UserId] = {}
        for slug in ("acme", "other"):
            commands.register_tenant(
                store, slug=slug, title=slug.title(), currency="USD", by=SOMEBODY, now=NOON
            )
            person = Person.objects.create_user(f"olga@{slug}.example")
            self.people[slug] = UserId(person.id)
            commands.admit_member(
                store,
                tenant_id=tenant_id_of(slug),
                user_id=self.people[slug],
                subscriber_id=None,
                roles=("operator",),
                by=SOMEBODY,
                now=NOON,
            )
        self.deliver = self.delivering()

    def delivering(self) -> Delivering:
        post = WebhookSender(clock=lambda: self.now, private=True, timeout_seconds=60)
        return Delivering({"mail": MailSender(), "webhook": post})

    def actor(self, slug: str = "acme") -> Actor:
        return Actor(
            tenant_id=tenant_id_of(slug),
            user_id=self.people[slug],
            roles=frozenset({"operator"}),
        )

    def hook(self, path: str = "/hook", slug: str = "acme", *topics: str) -> tuple[UUID, str]:
        made = webhooks.add_webhook(
            self.actor(slug),
            webhook_id=uuid4(),
            url=f"{self.receiver.url}{path}",
            topics=topics,
            now=self.now,
        )
        return made.webhook_id, made.secret

    def give(self, key: str = "1", slug: str = "acme", at: datetime | None = None) -> None:
        commands.give_notice(
            self.store,
            to=To(tenant_id=tenant_id_of(slug)),
            topic="money",
            key=key,
            title=f"Notice {key}",
            body="An account runs low.",
            link="/finance",
            facts={"left_nanos": "7"},
            by=SOMEBODY,
            now=at or self.now,
        )

    def run(self) -> None:
        """Deliver until nothing is left to do now."""
        ends_at = monotonic() + PATIENCE_SECONDS
        while True:
            done = self.deliver.run_once(self.store, now=self.now)
            if self.deliver.under_way:
                self.deliver.wait(PATIENCE_SECONDS)
            elif not done:
                return
            assert monotonic() < ends_at

    def until(self, met: Callable[[], bool]) -> None:
        """Deliver, waiting for no receiver, until something is so."""
        ends_at = monotonic() + PATIENCE_SECONDS
        while not met():
            self.deliver.run_once(self.store, now=self.now)
            assert monotonic() < ends_at

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as known:
        yield known


@pytest.fixture
def site(store: MemoryStore, receiver: Receiver, settings: Any) -> Site:
    settings.ENV = replace(settings.ENV, webhooks="private", base_url="https://gpu.example")
    return Site(store, receiver)


def bodies(receiver: Receiver, path: str = "/hook") -> list[Any]:
    return [json.loads(body) for _, body in receiver.at(path)]


def test_a_notice_is_posted_once_with_its_facts_and_a_whole_link(site: Site) -> None:
    _, secret = site.hook()
    site.give()
    site.run()
    site.run()

    [(headers, body)] = site.receiver.at("/hook")
    told = json.loads(body)
    assert told["type"] == "notice.money"
    assert told["data"]["title"] == "Notice 1"
    assert told["data"]["link"] == "https://gpu.example/finance"
    assert told["data"]["facts"] == {"left_nanos": "7"}
    assert headers["webhook-signature"] == sign([secret], headers["webhook-id"], site.now, body)


def test_a_webhook_hears_of_its_organisation_and_its_topics_only(site: Site) -> None:
    site.hook("/all")
    site.hook("/invoices", "acme", "invoice")
    site.hook("/other", "other")
    site.give()
    site.run()
    assert len(site.receiver.at("/all")) == 1
    assert site.receiver.at("/invoices") == site.receiver.at("/other") == []


def test_what_fails_is_tried_again_later_under_the_same_id(site: Site) -> None:
    hook_id, _ = site.hook()
    site.receiver.answers["/hook"] = 500
    site.give()
    site.run()
    assert len(site.receiver.at("/hook")) == 1

    site.receiver.answers["/hook"] = 200
    site.later(seconds=11)
    site.run()
    ids = {headers["webhook-id"] for headers, _ in site.receiver.at("/hook")}
    assert (len(site.receiver.at("/hook")), len(ids)) == (2, 1)
    [row] = webhooks.deliveries(site.actor(), hook_id)
    assert (row.state, row.attempts) == ("through", 2)
    tried = webhooks.attempts([row.delivery_id])[row.delivery_id]
    assert [(each.number, each.status, each.words) for each in tried] == [
        (1, 500, "heard   you"),
        (2, 200, "heard   you"),
    ]


def test_a_message_that_never_gets_through_fails_after_eight_attempts(site: Site) -> None:
    hook_id, _ = site.hook()
    site.receiver.answers["/hook"] = 500
    site.give()
    for _ in range(12):
        site.run()
        site.later(hours=7)
    [row] = webhooks.deliveries(site.actor(), hook_id)
    assert (row.state, row.attempts) == ("failed", 8)

    site.receiver.answers["/hook"] = 200
    webhooks.switch_on(site.actor(), hook_id)
    webhooks.send_again(site.actor(), hook_id, row.delivery_id, now=site.now)
    site.run()
    row.refresh_from_db()
    assert row.state == "through"


def test_a_slow_receiver_holds_up_only_its_own(site: Site) -> None:
    slow, _ = site.hook("/slow")
    site.hook("/hook")
    for key in "123":
        site.give(key)
    site.until(lambda: len(site.receiver.at("/hook")) == 3)
    assert site.receiver.at("/slow") == []

    site.receiver.open.set()
    site.run()
    assert len(site.receiver.at("/slow")) == 3
    assert all(row.state == "through" for row in webhooks.deliveries(site.actor(), slow))


def test_a_dead_receiver_is_left_alone_and_others_go_on(site: Site) -> None:
    site.receiver.answers["/dead"] = 500
    site.hook("/dead")
    site.hook("/hook", "other")
    for number in range(20):
        site.give(str(number))
        site.give(str(number), "other")
    site.run()
    assert len(site.receiver.at("/dead")) == 1, "one attempt says that it is dead"
    assert len(site.receiver.at("/hook")) == 20


def test_a_webhook_that_failed_for_days_is_switched_off_and_people_are_told(site: Site) -> None:
    hook_id, _ = site.hook()
    site.receiver.answers["/hook"] = 500
    for day in range(5):
        site.give(str(day))
        site.run()
        site.later(days=1)
    row = webhooks.webhook(site.actor(), hook_id)
    assert row.off_at is not None
    assert FAILING_MAX <= row.off_at - NOON <= FAILING_MAX + timedelta(days=1)
    assert not DeliveryRow.objects.filter(state="waiting").exists()
    told = [one.event for one in site.store.read_all(limit=1_000).events]
    assert [event.topic for event in told if isinstance(event, NoticeGiven)].count("delivery") == 1
    with pytest.raises(WebhookOff):
        webhooks.send_test(site.actor(), hook_id, now=site.now)

    site.receiver.answers["/hook"] = 200
    webhooks.switch_on(site.actor(), hook_id)
    site.give("again")
    site.run()
    assert bodies(site.receiver)[-1]["data"]["title"] == "Notice again"


def test_a_receiver_that_answers_gone_is_not_asked_again(site: Site) -> None:
    hook_id, _ = site.hook()
    site.receiver.answers["/hook"] = 410
    site.give("1")
    site.give("2")
    site.run()
    site.later(days=1)
    site.run()
    assert len(site.receiver.at("/hook")) == 1
    assert "410" in webhooks.webhook(site.actor(), hook_id).off_reason


def test_killed_between_sending_and_noting_it_is_sent_again_under_the_same_id(site: Site) -> None:
    site.hook()
    site.give()
    site.deliver.run_once(site.store, now=site.now)
    site.deliver.wait(PATIENCE_SECONDS)
    assert len(site.receiver.at("/hook")) == 1

    site.deliver = site.delivering()  # what was under way is forgotten with the process
    site.run()
    ids = [headers["webhook-id"] for headers, _ in site.receiver.at("/hook")]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert [row.state for row in DeliveryRow.objects.all()] == ["through"]


def test_a_new_secret_signs_beside_the_one_before_for_a_day(site: Site) -> None:
    hook_id, old = site.hook()
    new = webhooks.rotate_secret(site.actor(), hook_id, now=site.now).secret
    assert new != old

    def signed_by() -> str:
        site.give(site.now.isoformat())
        site.run()
        headers, body = site.receiver.at("/hook")[-1]
        by = [
            s
            for s in (new, old)
            if sign([s], headers["webhook-id"], site.now, body)
            in headers["webhook-signature"].split()
        ]
        return " ".join("new" if each == new else "old" for each in by)

    site.later(hours=23)
    assert signed_by() == "new old"
    site.later(hours=2)
    assert signed_by() == "new"


def test_secrets_are_sealed_where_they_are_kept(site: Site) -> None:
    hook_id, secret = site.hook()
    row = WebhookRow.objects.get(pk=hook_id)
    kept = b"".join(bytes(each) for each in (row.key, row.value))
    assert secret.encode() not in kept
    assert webhooks.secrets_of(row, default_vault(), now=site.now) == (secret,)


def test_a_test_message_arrives_at_once(site: Site) -> None:
    hook_id, _ = site.hook()
    sent = webhooks.send_test(site.actor(), hook_id, now=site.now)
    site.run()
    [(headers, body)] = site.receiver.at("/hook")
    assert headers["webhook-id"] == str(sent)
    assert json.loads(body)["type"] == "notice.test"


def test_only_operators_of_the_organisation_have_its_webhooks(site: Site) -> None:
    hook_id, _ = site.hook()
    others = site.actor("other")
    for asked in (
        lambda: webhooks.webhook(others, hook_id),
        lambda: webhooks.remove_webhook(others, hook_id),
        lambda: webhooks.rotate_secret(others, hook_id, now=site.now),
        lambda: webhooks.send_test(others, hook_id, now=site.now),
        lambda: webhooks.deliveries(others, hook_id),
    ):
        with pytest.raises(WebhookUnknown):
            asked()
    with pytest.raises(RoleMissing):
        webhooks.webhooks(replace(site.actor(), roles=frozenset({"finance"})))
    with pytest.raises(DeliveryUnknown):
        webhooks.send_again(site.actor(), hook_id, uuid4(), now=site.now)


def test_what_cannot_be_a_webhook_is_refused(site: Site, settings: Any) -> None:
    with pytest.raises(TopicUnknown):
        site.hook("/x", "acme", "weather")
    for number in range(10):
        site.hook(f"/{number}")
    with pytest.raises(TooManyWebhooks):
        site.hook("/one-more")
    settings.ENV = replace(settings.ENV, webhooks="public")
    with pytest.raises(UrlUnfit):
        site.hook("/x", "other")


def test_what_is_removed_hears_no_more_and_leaves_no_log(site: Site) -> None:
    hook_id, _ = site.hook()
    site.give()
    site.run()
    webhooks.remove_webhook(site.actor(), hook_id)
    site.give("2")
    site.run()
    assert len(site.receiver.at("/hook")) == 1
    assert not DeliveryRow.objects.exists() and not AttemptRow.objects.exists()


def test_what_happened_long_ago_goes_to_inboxes_alone(site: Site) -> None:
    site.hook()
    site.give("old", at=site.now - STALE_AFTER - timedelta(seconds=1))
    site.run()
    assert site.receiver.posts == []


def test_the_log_is_forgotten_after_a_month(site: Site) -> None:
    site.hook()
    site.give()
    site.run()
    site.later(days=KEPT.days + 1)
    site.run()
    assert not DeliveryRow.objects.exists() and not AttemptRow.objects.exists()


def test_people_hear_by_mail_of_what_they_want(site: Site, settings: Any) -> None:
    with mail_server() as box:
        use_mail(settings, box.port)
        settings.ENV = replace(settings.ENV, mail_host="127.0.0.1", mail_from="o@gpu.example")
        site.give("1")
        site.run()
        [(to, text)] = box.mails
        assert to == "olga@acme.example"
        assert "https://gpu.example/finance" in text
        assert "https://gpu.example/settings/notifications" in text

        wish(site.actor(), "money", in_inbox=True, by_mail=False, now=site.now)
        site.give("2")
        site.run()
        assert len(box.mails) == 1


def test_without_a_mail_server_nothing_waits_to_be_mailed(site: Site) -> None:
    site.give()
    site.run()
    assert not DeliveryRow.objects.exists()


def test_an_address_that_another_organisations_link_made_gets_no_mail(
    site: Site, settings: Any
) -> None:
    settings.ENV = replace(settings.ENV, mail_host="127.0.0.1", mail_from="o@gpu.example")
    Person.objects.filter(pk=site.people["acme"]).update(vouched_by=OTHER)
    site.give()
    site.deliver.run_once(site.store, now=site.now)
    assert not DeliveryRow.objects.exists()


class Broken:
    """A sender with a fault of its own."""

    def send(self, message: Message) -> Outcome:
        raise RuntimeError("a fault")


def test_a_senders_fault_stays_with_its_message(site: Site) -> None:
    site.hook()
    site.deliver = Delivering({"mail": MailSender(), "webhook": Broken()})
    site.give()
    site.run()
    [row] = DeliveryRow.objects.all()
    assert (row.state, row.attempts) == ("waiting", 1)


def test_webhooks_lead_to_public_addresses_unless_set_otherwise() -> None:
    assert Env().webhooks == "public"


def test_messages_that_nobody_carries_are_counted_as_overdue(site: Site) -> None:
    hook_id, _ = site.hook()
    webhooks.send_test(site.actor(), hook_id, now=site.now)
    assert overdue(now=site.now + timedelta(hours=1)) == 0
    assert overdue(now=site.now + timedelta(hours=3)) == 1
    site.run()
    assert overdue(now=site.now + timedelta(hours=3)) == 0


def test_the_chapter_says_how_to_tell_our_messages_from_others(site: Site) -> None:
    text = (Path(__file__).parents[2] / "config/docs/notifications.md").read_text()
    known: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], known)
    is_ours = known["is_ours"]
    hook_id, secret = site.hook()
    site.now = datetime.now(UTC)
    webhooks.send_test(site.actor(), hook_id, now=site.now)
    site.run()
    [(headers, body)] = site.receiver.at("/hook")

    assert is_ours(secret, headers, body)
    assert not is_ours(secret, headers, body + b" ")
    assert not is_ours("whsec_" + "A" * 44, headers, body)
    assert not is_ours(secret, {**headers, "webhook-id": str(uuid4())}, body)
    long_ago = str(int(headers["webhook-timestamp"]) - 301)
    assert not is_ours(secret, {**headers, "webhook-timestamp": long_ago}, body)
