"""Signing in to pages, acting for a tenant, one-click log-ins of the demo, single sign-on."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.test import Client

from config.env import Env, read_env
from config.security.single_signon import oidc_providers
from ledger.domain.events import MemberAdmitted, TenantRegistered
from ledger.eventstore import default_store
from ledger.models import MemberRow, Person, TenantRow
from ledger.signin import set_password
from tests.access.conftest import Caller, admit

pytestmark = pytest.mark.urls("tests.access.site")

VISITORS = "config.web.visitors.Visitors"
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def visitors(settings: Any) -> None:
    if VISITORS not in settings.MIDDLEWARE:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, VISITORS]


def person(caller: Caller) -> Person:
    return Person.objects.get(id=caller.user_id)


def client_of(caller: Caller, *, csrf: bool = False) -> Client:
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(person(caller))
    return client


def demo(monkeypatch: Any, *, on: bool) -> None:
    monkeypatch.setattr(django_settings, "ENV", replace(django_settings.ENV, demo=on))


def test_a_guest_is_sent_to_the_log_in_page(client: Client, db: None) -> None:
    response = client.get("/owners")

    assert response.status_code == 302
    assert response["Location"] == "/accounts/login/?next=%2Fowners"


def test_a_person_signs_in_with_address_and_password(ada: Caller, client: Client) -> None:
    set_password(person(ada), PASSWORD)

    wrong = client.post("/accounts/login/", {"login": person(ada).email, "password": "guess"})
    right = client.post(
        "/accounts/login/", {"login": person(ada).email.upper(), "password": PASSWORD}
    )

    assert wrong.status_code == 200
    assert (right.status_code, right["Location"]) == (302, "/")
    assert client.get("/").content == b"member at Ada-Labs"


def test_a_page_for_other_roles_is_forbidden(ada: Caller) -> None:
    response = client_of(ada).get("/owners")

    assert response.status_code == 403


def test_a_person_without_a_membership_is_told_so(db: None) -> None:
    client = Client()
    client.force_login(Person.objects.create_user("nobody@example.org"))

    assert client.get("/").status_code == 403


def test_nobody_makes_an_account_of_their_own_accord(client: Client, db: None) -> None:
    form = {"email": "eve@example.org", "password1": PASSWORD, "password2": PASSWORD}

    client.post("/accounts/signup/", form)

    assert not Person.objects.exists()


def test_a_second_factor_can_be_set_up_and_is_then_asked_for(ada: Caller) -> None:
    from allauth.mfa.adapter import get_adapter
    from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret

    set_password(person(ada), PASSWORD)
    client = Client()
    form = {"login": person(ada).email, "password": PASSWORD}
    client.post("/accounts/login/", form)
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    set_up = client.get("/accounts/2fa/totp/activate/")
    TOTP.activate(person(ada), generate_totp_secret())

    again = Client()
    response = again.post("/accounts/login/", form)

    assert set_up.status_code == 200
    assert response["Location"].startswith("/accounts/2fa/authenticate/")
    assert again.get("/").status_code == 302
    assert get_adapter().is_mfa_enabled(person(ada))


def test_a_person_acts_for_one_tenant_at_a_time_and_switches(ada: Caller, bob: Caller) -> None:
    both = MemberRow.objects.get(tenant_id=bob.tenant_id)
    MemberRow.objects.filter(pk=both.pk).update(user_id=ada.user_id)
    client = client_of(ada)

    first = client.get("/").content
    client.post("/switch-tenant", {"tenant_id": str(bob.tenant_id)})
    second = client.get("/").content
    MemberRow.objects.filter(pk=both.pk).delete()

    assert (first, second) == (b"member at Ada-Labs", b"member at Bob-Works")
    assert client.get("/").content == b"member at Ada-Labs"


def test_nobody_switches_to_a_tenant_they_are_no_member_of(ada: Caller, bob: Caller) -> None:
    client = client_of(ada)

    response = client.post("/switch-tenant", {"tenant_id": str(bob.tenant_id)})

    assert response.status_code == 404
    assert client.get("/").content == b"member at Ada-Labs"


def test_a_session_may_call_the_api_but_writes_need_the_csrf_token(ada: Caller) -> None:
    client = client_of(ada, csrf=True)
    body = json.dumps({"text": "hello"})
    client.cookies["csrftoken"] = "t" * 32

    read = client.get("/api/v1/notes")
    without = client.post("/api/v1/notes", body, content_type="application/json")
    with_it = client.post(
        "/api/v1/notes", body, content_type="application/json", headers={"X-CSRFToken": "t" * 32}
    )

    assert read.status_code == 200
    assert (without.status_code, without.json()["code"]) == (403, "csrf-token-missing")
    assert with_it.status_code == 201


def test_an_inactive_person_is_nobody(ada: Caller) -> None:
    client = client_of(ada)
    Person.objects.filter(id=ada.user_id).update(is_active=False)

    assert client.get("/api/v1/notes").status_code == 401
    assert client.get("/").status_code == 302


def test_one_click_signs_in_the_demo_s_people_and_nobody_else(
    ada: Caller, bob: Caller, monkeypatch: Any
) -> None:
    demo(monkeypatch, on=True)
    Person.objects.filter(id=ada.user_id).update(is_demo=True, title="Ada")
    client = Client(SERVER_NAME="localhost")

    page = client.get("/accounts/login/")
    no_demo_person = client.post("/demo/sign-in", {"email": person(bob).email})
    elsewhere = client.post(
        "/demo/sign-in", {"email": person(ada).email, "next": "https://evil.example/"}
    )

    assert page.context["demo_people"] == [
        {"email": person(ada).email, "title": "Ada", "does": "consumer at Ada-Labs"}
    ]
    assert no_demo_person.status_code == 404
    assert (elsewhere.status_code, elsewhere["Location"]) == (302, "/")
    assert client.get("/").content == b"member at Ada-Labs"


def test_outside_a_demo_there_is_no_one_click_log_in(ada: Caller, monkeypatch: Any) -> None:
    demo(monkeypatch, on=False)
    Person.objects.filter(id=ada.user_id).update(is_demo=True)
    client = Client()

    page = client.get("/accounts/login/")
    response = client.post("/demo/sign-in", {"email": person(ada).email})

    assert page.context["demo_people"] == []
    assert response.status_code == 404
    assert client.get("/").status_code == 302


def test_one_click_needs_a_form_of_ours(ada: Caller, monkeypatch: Any) -> None:
    demo(monkeypatch, on=True)
    Person.objects.filter(id=ada.user_id).update(is_demo=True)
    client = Client(enforce_csrf_checks=True, SERVER_NAME="localhost")

    got = client.get("/demo/sign-in")
    posted = client.post("/demo/sign-in", {"email": person(ada).email})

    assert (got.status_code, posted.status_code) == (405, 403)


def test_single_sign_on_is_offered_where_an_issuer_is_named(client: Client, db: None) -> None:
    env = Env(oidc_issuer_url="https://id.example", oidc_client_id="a", oidc_client_secret="b")

    providers = oidc_providers(env)

    assert oidc_providers(Env()) == {}
    app = providers["openid_connect"]["APPS"][0]
    assert (app["client_id"], app["settings"]) == ("a", {"server_url": "https://id.example"})


def test_an_issuer_without_a_secret_stops_the_start() -> None:
    with pytest.raises(SystemExit, match="OFFPEAK_OIDC_CLIENT_SECRET"):
        oidc_providers(read_env({"OFFPEAK_OIDC_ISSUER_URL": "https://id.example"}))


def test_the_log_in_page_leads_to_the_issuer(client: Client, db: None, settings: Any) -> None:
    settings.SOCIALACCOUNT_PROVIDERS = oidc_providers(
        Env(oidc_issuer_url="https://id.example", oidc_client_id="a", oidc_client_secret="b")
    )

    page = client.get("/accounts/login/")

    assert b"/accounts/oidc/sso/login/" in page.content


def appoint(monkeypatch: Any, password: str, email: str = "root@example.org") -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
    call_command("appoint", email, stdout=io.StringIO())


def test_appoint_makes_the_first_operator(client: Client, db: None, monkeypatch: Any) -> None:
    appoint(monkeypatch, PASSWORD)
    appoint(monkeypatch, PASSWORD)

    registered, admitted = (each.event for each in default_store().read_all().events)
    assert isinstance(registered, TenantRegistered)
    assert registered.is_platform
    assert isinstance(admitted, MemberAdmitted)
    assert admitted.roles == ("operator",)
    form = {"login": "root@example.org", "password": PASSWORD}
    assert client.post("/accounts/login/", form).status_code == 302


@pytest.mark.parametrize(
    ("password", "email"), [("password", "root@example.org"), (PASSWORD, "root")]
)
def test_appoint_refuses_a_weak_password_and_a_bad_address(
    db: None, monkeypatch: Any, password: str, email: str
) -> None:
    with pytest.raises(CommandError):
        appoint(monkeypatch, password, email)

    assert default_store().head() == 0


def test_at_a_terminal_appoint_asks_twice_and_changes_nothing_where_they_differ(
    db: None, monkeypatch: Any
) -> None:
    typed = iter([PASSWORD, PASSWORD + "x", PASSWORD, PASSWORD])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))

    with pytest.raises(CommandError, match="not the same"):
        call_command("appoint", "root@example.org", stdout=io.StringIO())
    assert (default_store().head(), Person.objects.count()) == (0, 0)

    call_command("appoint", "root@example.org", stdout=io.StringIO())
    assert Person.objects.get().check_password(PASSWORD)


def test_rows_of_another_tenant_stay_hidden_from_its_session(ada: Caller) -> None:
    other = admit("other-org", "consumer")

    assert TenantRow.objects.count() == 2
    shown = client_of(ada).get("/api/v1/notes").json()["data"]
    assert str(other.tenant_id) not in json.dumps(shown)
