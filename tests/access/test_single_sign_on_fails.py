"""An issuer that is away or answers nonsense is told on a page of ours, with the reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.test import Client

from config.env import read_env
from config.security.single_signon import oidc_providers

pytestmark = pytest.mark.django_db
KEYS = {"OFFPEAK_OIDC_CLIENT_ID": "gpu", "OFFPEAK_OIDC_CLIENT_SECRET": "s" * 20}


class Issuer(BaseHTTPRequestHandler):
    """Answers its discovery document at the one right address; `answers` says with what."""

    answers = (200, "{}")
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, text = self.answers
        if self.path != "/realms/gpu/.well-known/openid-configuration":
            status, text = 404, ""
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def issuer() -> Iterator[HTTPServer]:
    Issuer.answers, Issuer.asked = (200, "{}"), []
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def named(settings: Any, address: str) -> None:
    env = read_env({**KEYS, "OFFPEAK_OIDC_ISSUER_URL": address})
    settings.ENV = replace(settings.ENV, oidc_issuer_url=env.oidc_issuer_url)
    settings.SOCIALACCOUNT_PROVIDERS = oidc_providers(env)


def address_of(issuer: HTTPServer) -> str:
    return f"http://127.0.0.1:{issuer.server_port}/realms/gpu"


@pytest.mark.parametrize("end", ["", "/", "//", "/.well-known/openid-configuration"])
def test_an_issuer_is_found_however_its_address_ends(
    client: Client, settings: Any, issuer: HTTPServer, end: str
) -> None:
    named(settings, address_of(issuer) + end)
    there = {
        "authorization_endpoint": "https://id.example/authorize",
        "token_endpoint": "https://id.example/token",
    }
    Issuer.answers = (200, json.dumps(there))

    answer = client.post("/accounts/oidc/sso/login/")

    assert Issuer.asked == ["/realms/gpu/.well-known/openid-configuration"]
    assert answer.status_code == 302
    assert answer["Location"].startswith("https://id.example/authorize?")
    assert "%2Faccounts%2Foidc%2Fsso%2Flogin%2Fcallback%2F" in answer["Location"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((404, ""), "answered 404"),
        ((500, "oops"), "answered 500"),
        ((200, "<html>"), "did not answer with JSON"),
        ((200, "[]"), "something else"),
        ((200, "null"), "something else"),
        ((200, "{}"), "does not say token_endpoint"),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_an_issuer_that_answers_nonsense_is_told_with_the_reason(
    client: Client,
    settings: Any,
    issuer: HTTPServer,
    answers: tuple[int, str],
    reason: str,
    method: str,
) -> None:
    named(settings, address_of(issuer))
    Issuer.answers = answers

    answer = getattr(client, method)("/accounts/oidc/sso/login/")

    if method == "get" and answer.status_code == 200:
        return  # it asks for a click first, and the issuer for nothing
    text = answer.content.decode()
    assert answer.status_code == 503
    assert reason in text and "<main" in text and 'href="/accounts/login/"' in text


def test_an_issuer_that_is_away_is_told(client: Client, settings: Any) -> None:
    named(settings, "http://127.0.0.1:1")

    answer = client.post("/accounts/oidc/sso/login/")

    assert answer.status_code == 503
    assert b"cannot be reached" in answer.content


def test_an_unknown_provider_is_an_unknown_page(client: Client, settings: Any) -> None:
    named(settings, "http://127.0.0.1:1")

    assert client.post("/accounts/oidc/other/login/").status_code == 404


def test_a_callback_that_nobody_asked_for_is_told_on_a_page(
    client: Client, settings: Any, issuer: HTTPServer
) -> None:
    named(settings, address_of(issuer))

    for query in ("", "?state=x&code=y", "?error=access_denied"):
        answer = client.get("/accounts/oidc/sso/login/callback/" + query)
        assert answer.status_code < 500 or b"<main" in answer.content, query
        assert b"<h1" in answer.content or answer.status_code == 302
