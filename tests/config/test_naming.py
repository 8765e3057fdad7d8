"""One base URL says all that a site behind a proxy must know of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_protect

from config import settings as product
from config.checks import plain_http
from config.env import read_env
from config.operations import health
from config.urls import *  # noqa: F403  # handlers and addresses of the product
from ledger.access.visits import site_address

PUBLIC = "gpu.example"


@csrf_protect
def seen(request: HttpRequest) -> JsonResponse:
    """Tell how the site sees a request."""
    return JsonResponse(
        {
            "link": request.build_absolute_uri("/x"),
            "secure": request.is_secure(),
            "address": site_address(request),
        }
    )


urlpatterns = [path("seen", seen), path("api/v1/seen", seen), path("healthz", health.healthz)]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture
def behind(settings: Any) -> None:
    """Set what OFFPEAK_BASE_URL alone sets."""
    env = read_env({"OFFPEAK_BASE_URL": f"https://{PUBLIC}/"})
    settings.ENV = replace(django_settings.ENV, base_url=env.base_url)
    settings.ALLOWED_HOSTS = product._hosts(env)
    settings.CSRF_TRUSTED_ORIGINS = [env.base_url]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


PROXIES = {
    "keeps the name, tells the scheme": {
        "HTTP_HOST": PUBLIC,
        "HTTP_X_FORWARDED_PROTO": "https",
    },
    "keeps the name": {"HTTP_HOST": PUBLIC},
    "keeps the name with its port": {"HTTP_HOST": f"{PUBLIC}:443"},
    "as nginx without further words": {"HTTP_HOST": "127.0.0.1:8000"},
    "names a backend": {"HTTP_HOST": "localhost:8000", "HTTP_X_FORWARDED_PROTO": "https"},
}


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.usefixtures("behind")
def test_links_lead_to_the_base_url_whatever_the_proxy_tells(client: Client, proxy: str) -> None:
    told = client.get("/seen", **PROXIES[proxy]).json()  # type: ignore[arg-type]  # headers

    assert told["link"].replace(":443", "") == f"https://{PUBLIC}/x"
    assert told["secure"] is True
    assert told["address"] == f"https://{PUBLIC}"


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.usefixtures("behind")
def test_a_form_of_the_site_is_taken_whatever_the_proxy_tells(proxy: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = token = "a" * 32

    answer = client.post(
        "/seen",
        {"csrfmiddlewaretoken": token},
        HTTP_ORIGIN=f"https://{PUBLIC}",
        **PROXIES[proxy],  # type: ignore[arg-type]  # headers
    )

    assert answer.status_code == 200


@pytest.mark.usefixtures("behind")
def test_a_form_of_another_site_is_refused_behind_a_proxy_too() -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = token = "a" * 32

    answer = client.post(
        "/seen",
        {"csrfmiddlewaretoken": token},
        HTTP_ORIGIN="https://evil.example",
        HTTP_HOST="127.0.0.1:8000",
    )

    assert answer.status_code == 403


@pytest.mark.usefixtures("behind")
def test_a_form_comes_through_a_tunnel_to_this_machine_too() -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = token = "a" * 32

    answer = client.post(
        "/seen",
        {"csrfmiddlewaretoken": token},
        HTTP_ORIGIN="http://localhost:8000",
        HTTP_HOST="localhost:8000",
    )

    assert answer.status_code == 200


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("host", ["10.1.2.3:8000", "evil.example", PUBLIC, "", "a b", "x" * 5_000])
def test_a_probe_is_answered_whatever_name_it_uses(client: Client, host: str) -> None:
    assert client.get("/healthz", HTTP_HOST=host).status_code == 200


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("host", ["evil.example", "10.1.2.3", f"x.{PUBLIC}", "a b", "x" * 5_000])
def test_a_name_that_is_not_ours_gets_a_page_that_says_so(client: Client, host: str) -> None:
    page = client.get("/seen", HTTP_HOST=host)
    problem = client.get("/api/v1/seen", HTTP_HOST=host)

    assert page.status_code == problem.status_code == 400
    assert b"does not go by the name" in page.content
    assert b"<main" in page.content
    assert problem.json()["code"] == "name-unknown"


@pytest.mark.usefixtures("behind")
def test_unknown_names_fill_no_log(client: Client, caplog: Any, capfd: Any) -> None:
    for _ in range(30):
        client.get("/seen", HTTP_HOST="evil.example")
    for number in range(100):
        client.get("/seen", HTTP_HOST=f"evil{number}.example")

    written = capfd.readouterr()
    assert "Traceback" not in written.err + written.out + caplog.text
    assert (written.err + written.out).count("host.unknown") <= 20


def test_more_names_are_added_to_those_that_are_known_anyway() -> None:
    env = read_env(
        {
            "OFFPEAK_BASE_URL": "https://GPU.example:8443",
            "OFFPEAK_HOST": "10.0.0.5",
            "OFFPEAK_ALLOWED_HOSTS": "old.example",
        }
    )

    assert product._hosts(env) == [
        "localhost", "127.0.0.1", "[::1]", "gpu.example", "10.0.0.5", "old.example",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base_url", "warned"),
    [
        ("", False),
        ("https://gpu.example", False),
        ("http://localhost:8000", False),
        ("http://[::1]:8000", False),
        ("http://gpu.example", True),
        ("http://10.0.0.5:8000", True),
    ],
)
def test_an_address_that_is_not_encrypted_is_warned_of(
    settings: Any, base_url: str, warned: bool
) -> None:
    settings.ENV = replace(django_settings.ENV, base_url=base_url)

    assert bool(plain_http(None)) is warned
