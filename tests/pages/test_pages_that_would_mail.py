"""Where no mail server is set, nothing promises a mail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings
from django.core import mail
from django.test import Client, override_settings

pytestmark = pytest.mark.django_db
PATHS = ("/accounts/password/reset/", "/accounts/password/reset/done/", "/accounts/email/")


@pytest.mark.parametrize("path", PATHS)
def test_without_a_mail_server_a_page_says_what_to_do_instead(path: str) -> None:
    page = Client().get(path)

    assert page.status_code == 200
    text = page.content.decode()
    assert "manage.py changepassword" in text and "<form" not in text
    assert "sent you" not in text and "send you" not in text


def test_a_form_sent_there_all_the_same_sends_nothing() -> None:
    answer = Client().post("/accounts/password/reset/", {"email": "ada@example.com"})

    assert answer.status_code == 409
    assert mail.outbox == []


def test_with_a_mail_server_a_link_can_be_asked_for() -> None:
    with override_settings(ENV=replace(settings.ENV, mail_host="mail.example")):
        page = Client().get("/accounts/password/reset/").content.decode()

    assert 'name="email"' in page and "sends no mail" not in page
