"""A role that needs a second factor is of no use to who has none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.test import Client

from ledger.models import Person
from tests.access.conftest import admit

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "long enough to be one"
ENROL = "/accounts/2fa/totp/activate/"


@pytest.fixture(autouse=True)
def needed(settings: Any, db: object) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator", "finance"})


def client_of(person: Person) -> Client:
    client = Client()
    client.force_login(person)
    return client


@pytest.mark.parametrize("path", ["/", "/settings", "/leases", "/bids/new"])
def test_who_has_none_is_led_to_set_one_up_before_anything_else(path: str) -> None:
    person = Person.objects.get(id=admit("acme", "consumer", "operator").user_id)
    client = client_of(person)

    page, part = client.get(path), client.get(path, headers={"HX-Request": "true"})

    assert (page.status_code, page["Location"]) == (302, ENROL)
    assert part["HX-Redirect"] == ENROL
    assert client.post("/settings", {"title": "x"})["Location"] == ENROL
    shown = client.get(ENROL)
    assert shown.headers.get("Location", "") != ENROL
    assert "needs a second factor" in client.get(shown.headers.get("Location", ENROL)).text
    assert client.get("/docs/").status_code == 200


def test_tokens_and_sessions_of_such_a_role_work_only_after() -> None:
    caller = admit("acme", "finance")
    person = Person.objects.get(id=caller.user_id)
    client = client_of(person)

    for refused in (caller.get("/api/v1/me"), client.get("/api/v1/me")):
        assert (refused.status_code, refused.json()["code"]) == (403, "second-factor-missing")
    Authenticator.objects.create(user=person, type=Authenticator.Type.RECOVERY_CODES, data={})
    assert caller.get("/api/v1/me").status_code == 403
    Authenticator.objects.create(user=person, type=Authenticator.Type.TOTP, data={})
    assert caller.get("/api/v1/me").status_code == 200
    assert client.get("/api/v1/me").status_code == 200
    assert client.get("/settings").status_code == 200


def test_other_roles_need_none() -> None:
    caller = admit("acme", "consumer")

    assert caller.get("/api/v1/me").status_code == 200
    assert client_of(Person.objects.get(id=caller.user_id)).get("/settings").status_code == 200


def test_a_role_that_is_none_stops_the_start(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import config.settings"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "OFFPEAK_HOME": str(tmp_path),
            "OFFPEAK_SECOND_FACTOR_ROLES": "operator,financ",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("OFFPEAK_SECOND_FACTOR_ROLES must be of owner,")


def test_who_sets_one_up_goes_on_at_once() -> None:
    caller = admit("acme", "operator")
    person = Person.objects.get(id=caller.user_id)
    person.set_password(PASSWORD)
    person.save()
    client = Client()
    entered = client.post("/accounts/login/", {"login": person.email, "password": PASSWORD})
    assert entered.status_code == 302

    again = client.get(client.get("/settings")["Location"])["Location"]
    assert client.post(again, {"password": PASSWORD})["Location"] == ENROL
    form = client.get(ENROL)
    secret = form.context["form"].secret
    counter = int(time.time()) // app_settings.TOTP_PERIOD
    code = format_hotp_value(hotp_value(secret, counter))
    done = client.post(ENROL, {"code": code})

    assert (done.status_code, done["Location"]) == (302, "/accounts/2fa/recovery-codes/")
    assert client.get("/settings").status_code == 200
    assert caller.get("/api/v1/me").status_code == 200


def test_who_comes_by_single_sign_on_only_can_set_one_up() -> None:
    person = Person.objects.get(id=admit("acme", "operator").user_id)
    person.set_unusable_password()
    person.save()

    assert client_of(person).get(ENROL).context["form"].secret
