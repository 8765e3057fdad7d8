"""What a person wants once a day comes in one mail, at an hour of theirs, all of it and once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import digests
from ledger.access import Actor
from ledger.delivering import Delivering, put_out
from ledger.digests import mail_digests, set_digest_time
from ledger.domain.digest_times import DigestTimeUnclear, next_digest
from ledger.domain.ids import UserId
from ledger.domain.notice_events import NoticeGiven, Topic
from ledger.domain.parties import tenant_id_of
from ledger.eventstore.memory import MemoryStore
from ledger.inbox import wish
from ledger.models import DeliveryRow, DigestItemRow, Person
from ledger.senders.mail import MailSender
from tests.conftest import NOON
from tests.ledger.receivers import mail_server, use_mail

ACME = tenant_id_of("acme")
SEVEN = datetime(2026, 1, 6, 6, tzinfo=UTC)
"""The first seven o'clock in Berlin after the notices of these tests."""


@pytest.fixture
def olga(db: None, settings: Any) -> Actor:
    """Somebody who wants news of quotas once a day at seven in Berlin, and of money at once."""
    use_mail(settings, 1)
    settings.ENV = replace(settings.ENV, mail_host="127.0.0.1", mail_from="o@gpu.example")
    person = Person.objects.create_user("olga@acme.example")
    actor = Actor(tenant_id=ACME, user_id=UserId(person.id), roles=frozenset({"operator"}))
    wish(actor, "quota", in_inbox=True, by_mail=True, daily=True, now=NOON)
    set_digest_time(actor, hour=7, zone="Europe/Berlin", now=NOON)
    return actor


def told(actor: Actor, title: str, topic: Topic = "quota", at: datetime = NOON) -> NoticeGiven:
    assert actor.user_id is not None
    return NoticeGiven(
        notice_id=uuid4(),
        tenant_id=ACME,
        subscriber_id=None,
        user_ids=(actor.user_id,),
        topic=topic,
        title=title,
        body="It was decided.",
        link="/fairness",
        facts=(),
        at=at,
    )


def mail(now: datetime) -> int:
    return mail_digests(now=now, receiver="mail", base_url="https://gpu.example")


def test_it_waits_for_the_hour_and_comes_as_one_mail(olga: Actor) -> None:
    for number in range(3):
        put_out(told(olga, f"Request {number}", at=NOON + timedelta(hours=number)), now=NOON)
    put_out(told(olga, "An account runs low", topic="money"), now=NOON)

    assert [row.title for row in DeliveryRow.objects.all()] == ["An account runs low"]
    assert mail(SEVEN - timedelta(seconds=1)) == 0
    assert mail(SEVEN) == 1

    row = DeliveryRow.objects.get(title__startswith="Offpeak")
    assert row.title == "Offpeak: 3 notices of the last day"
    places = [row.body.index(f"Request {number}") for number in range(3)]
    assert places == sorted(places)
    assert "https://gpu.example/fairness" in row.body


def test_a_notice_that_comes_again_is_mailed_once(olga: Actor) -> None:
    given = told(olga, "Request")
    put_out(given, now=NOON)
    put_out(given, now=NOON)
    assert mail(SEVEN) == 1
    put_out(given, now=SEVEN + timedelta(minutes=1))

    assert mail(SEVEN + timedelta(days=1)) == 0
    assert DeliveryRow.objects.count() == 1


def test_nothing_is_lost_or_told_twice_where_the_process_dies_on_the_way(
    olga: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_out(told(olga, "Request"), now=NOON)

    def dies(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(digests, "_taken", dies)
        with pytest.raises(SystemExit):
            mail(SEVEN)
    assert DeliveryRow.objects.count() == 0
    assert DigestItemRow.objects.filter(delivery_id=None).count() == 1

    assert (mail(SEVEN), mail(SEVEN)) == (1, 0)


def test_what_comes_meanwhile_comes_the_next_day(olga: Actor) -> None:
    put_out(told(olga, "First"), now=NOON)
    mail(SEVEN)
    put_out(told(olga, "Second", at=SEVEN), now=SEVEN)

    assert mail(SEVEN + timedelta(hours=23, minutes=59)) == 0
    assert mail(SEVEN + timedelta(days=1)) == 1


def test_it_is_mailed_by_the_loop_of_deliveries(
    olga: Actor, store: MemoryStore, settings: Any
) -> None:
    with mail_server() as box:
        use_mail(settings, box.port)
        put_out(told(olga, "Request"), now=NOON)
        delivering = Delivering({"mail": MailSender()})
        while delivering.run_once(store, now=SEVEN) or delivering.under_way:
            delivering.wait(60)

    [(to, body)] = box.mails
    assert to == "olga@acme.example"
    assert "Request" in body


def test_an_hour_that_no_day_has_is_refused(olga: Actor) -> None:
    with pytest.raises(DigestTimeUnclear):
        set_digest_time(olga, hour=24, zone="UTC", now=NOON)
    with pytest.raises(DigestTimeUnclear):
        set_digest_time(olga, hour=7, zone="Nowhere/Else", now=NOON)


@settings(deadline=None)
@given(
    now=st.integers(0, 366 * 24 * 60).map(lambda minutes: NOON + timedelta(minutes=minutes)),
    hour=st.integers(0, 23),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_the_hour_comes_once_a_day_also_where_clocks_change(
    now: datetime, hour: int, zone: str
) -> None:
    first = next_digest(now, hour=hour, zone=zone)
    second = next_digest(first, hour=hour, zone=zone)

    assert now < first <= now + timedelta(hours=26)
    assert timedelta(hours=22) <= second - first <= timedelta(hours=26)
    assert first.astimezone(ZoneInfo(zone)).hour in (hour, hour + 1), "later where it is skipped"
