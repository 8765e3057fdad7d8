"""Who has lost their second factor is let in by an operator: who may, and who hears of it."""

from __future__ import annotations

from smtplib import SMTPException
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client, override_settings
from django.utils import timezone

from config.env import Env
from ledger import commands
from ledger.domain.events import SecondFactorRemoved
from ledger.domain.ids import UserId
from ledger.eventstore import default_store
from ledger.models import Person
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db
MAILED = Env(mail_host="mail.example", mail_from="offpeak@gpu.example")


@pytest.fixture
def ada(world: World) -> Person:
    """A consumer with a second factor and codes for when it is lost."""
    world.member(CONSUMER, "consumer")
    person = Person.objects.get(email=f"consumer@{CONSUMER}.example")
    for kind in (Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES):
        Authenticator.objects.create(user=person, type=kind, data={})
    return person


def path(world: World, who: Person, slug: str = CONSUMER) -> str:
    return f"/settings/organisations/{world.tenant(slug)}/members/{who.pk}"


def unlock(client: Client, world: World, who: Person, slug: str = CONSUMER) -> Any:
    return client.delete(f"/api/v1/tenants/{world.tenant(slug)}/members/{who.pk}/second-factor")


def recorded() -> list[SecondFactorRemoved]:
    page = default_store().read_all(limit=10_000)
    return [each.event for each in page.events if isinstance(each.event, SecondFactorRemoved)]


def factors(who: Person) -> int:
    return int(Authenticator.objects.filter(user=who).count())


@pytest.mark.parametrize("slug", [CONSUMER, PLATFORM])
def test_an_operator_removes_a_lost_one_on_the_members_page(
    world: World, ada: Person, slug: str
) -> None:
    boss = world.member(slug, "operator")
    assert "Remove second factor…" in boss.get(path(world, ada)).text

    done = boss.post(f"{path(world, ada)}/second-factor", follow=True)

    assert "The second factor is removed. Tell them: no mail was sent." in done.text
    assert "Remove second factor…" not in done.text
    assert factors(ada) == 0
    assert [each.user_id for each in recorded()] == [ada.pk]
    assert mail.outbox == []


@override_settings(ENV=MAILED)
def test_the_person_is_told_by_mail(world: World, ada: Person) -> None:
    answer = unlock(world.member(CONSUMER, "operator"), world, ada)

    assert (answer.status_code, answer.json()["mailed"]) == (200, True)
    [told] = mail.outbox
    assert told.to == [ada.email]
    assert "change your password and tell the market's operators" in told.body


@override_settings(ENV=MAILED)
def test_a_mail_server_that_refuses_takes_nothing_back(
    world: World, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise SMTPException("no")

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)

    answer = unlock(world.member(CONSUMER, "operator"), world, ada)

    assert (answer.status_code, answer.json()["mailed"]) == (200, False)
    assert factors(ada) == 0 and len(recorded()) == 1


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_who_may_not_removes_none(world: World, ada: Person) -> None:
    operator, stranger = world.member(CONSUMER, "operator"), world.member(OWNER, "operator")
    chief = Person.objects.get(email=f"operator@{CONSUMER}.example")
    Authenticator.objects.create(user=chief, type=Authenticator.Type.TOTP, data={})
    finance = world.member(CONSUMER, "finance")

    assert refusal(unlock(stranger, world, ada)) == (404, "tenant-unknown")
    assert refusal(unlock(stranger, world, ada, OWNER)) == (404, "member-unknown")
    assert refusal(unlock(finance, world, ada)) == (403, "role-missing")
    assert refusal(unlock(operator, world, chief)) == (409, "own-second-factor")
    assert "Remove second factor…" not in operator.get(path(world, chief)).text
    assert (factors(ada), factors(chief), recorded()) == (2, 1, [])


def test_who_belongs_to_others_too_is_let_in_by_the_platform_alone(
    world: World, ada: Person
) -> None:
    """One log-in is for all: an organisation could else open the way into another."""
    commands.admit_member(
        world.store,
        tenant_id=world.tenant(OWNER),
        user_id=UserId(ada.pk),
        roles=["finance"],
        subscriber_id=None,
        by=BY,
        now=timezone.now(),
    )
    world.settle()

    refused = unlock(world.member(CONSUMER, "operator"), world, ada)

    assert refusal(refused) == (403, "log-in-of-others-too")
    assert factors(ada) == 2
    assert unlock(world.member(PLATFORM, "operator"), world, ada).status_code == 200
    assert factors(ada) == 0


def test_where_there_is_none_nothing_is_recorded(world: World, ada: Person) -> None:
    operator = world.member(CONSUMER, "operator")
    Authenticator.objects.filter(user=ada, type=Authenticator.Type.TOTP).delete()

    assert refusal(unlock(operator, world, ada)) == (409, "no-second-factor")
    assert recorded() == []
