"""The nginx configuration that we ship, with TLS in front of a real web process."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from ledger.models import Person
from ledger.signin import set_password
from tests.deploy.proxy import NAME, Proxy, proxied
from tests.pages.browser import served
from tests.pages.world import CONSUMER, World
from tests.ports import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]
PASSWORD = "correct horse battery"


@dataclass(frozen=True, slots=True)
class Site:
    """A market behind its proxy, and somebody who may sign in."""

    proxy: Proxy
    email: str


@pytest.fixture
def site(committed_store: None, tmp_path: Path) -> Iterator[Site]:
    world = World()
    world.found()
    member = world.member(CONSUMER, "consumer")
    person = Person.objects.get(id=member.session["_auth_user_id"])
    set_password(person, PASSWORD)
    backend = free_port()
    with (
        proxied(tmp_path, backend) as proxy,
        served(tmp_path / "web.log", port=backend, OFFPEAK_BASE_URL=proxy.base_url),
    ):
        yield Site(proxy, person.email)


@pytest.fixture
def nobody_behind(tmp_path: Path) -> Iterator[Proxy]:
    with proxied(tmp_path, free_port()) as proxy:
        yield proxy


def sign_in(site: Site, client: httpx.Client) -> httpx.Response:
    page = client.get("/accounts/login/?next=/leases")
    [token, *_] = re.findall(r'csrfmiddlewaretoken" value="(\w+)"', page.text)
    form = {"csrfmiddlewaretoken": token, "login": site.email, "password": PASSWORD}
    return client.post(
        "/accounts/login/",
        data={**form, "next": "/leases"},
        headers={"Origin": site.proxy.base_url, "Referer": site.proxy.base_url + "/"},
    )


def test_the_site_works_behind_nginx_with_the_base_url_alone(site: Site) -> None:
    """One test, since each start of nginx and the site takes seconds."""
    with site.proxy.client() as client:
        assert client.get("/healthz").json() == {"status": "up"}
        assert client.get("/readyz").status_code in (200, 503)

        came = client.get("/accounts/login/")
        assert came.headers["Strict-Transport-Security"].startswith("max-age=")
        assert f"wss://{NAME}:{site.proxy.port}" in came.headers["Content-Security-Policy"]
        assert came.headers["Content-Encoding"] == "gzip"

        answer = sign_in(site, client)
        assert (answer.status_code, answer.headers["Location"]) == (302, "/leases"), answer.text
        cookies = answer.headers.get_list("Set-Cookie")
        assert len(cookies) >= 2
        assert all("; Secure" in cookie for cookie in cookies), cookies
        assert client.get("/leases").status_code == 200

        schema = client.get("/api/openapi.json")
        assert schema.headers["Content-Encoding"] == "gzip"
        assert client.get("/nowhere").status_code == 404
        assert client.post("/api/v1/bids", content=b"x" * 3_000_000).status_code == 413

        session = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    _check_sockets(site.proxy, session)
    _check_plain_http(site.proxy)


def _check_sockets(proxy: Proxy, session: str) -> None:
    def opened(origin: str) -> ClientConnection:
        raw = socket.create_connection(("127.0.0.1", proxy.port))
        return connect(
            f"wss://{NAME}:{proxy.port}/ws/market",
            sock=raw,
            ssl=proxy.tls(),
            server_hostname=NAME,
            origin=Origin(origin),
            additional_headers={"Cookie": session},
            proxy=None,
            open_timeout=60,
        )

    with opened(proxy.base_url) as heard, pytest.raises(TimeoutError):
        heard.recv(timeout=0.5)  # open, and nothing happens on the market
    with pytest.raises(InvalidStatus) as refused, opened("https://evil.example"):
        pass
    assert refused.value.response.status_code == 403


def _check_plain_http(proxy: Proxy) -> None:
    answer = httpx.get(
        f"http://127.0.0.1:{proxy.plain_port}/leases?a=1", headers={"Host": NAME}, trust_env=False
    )

    assert answer.status_code == 301
    assert urlsplit(answer.headers["Location"])[:3] == ("https", NAME, "/leases")


def test_a_market_that_is_away_is_told_in_words(nobody_behind: Proxy) -> None:
    with nobody_behind.client() as client:
        page, problem = client.get("/leases"), client.get("/api/v1/bids")

    assert page.status_code == problem.status_code == 503
    assert "<main>" in page.text and 'href="/"' in page.text
    assert problem.json()["code"] == "store-busy"
    assert problem.headers["Content-Type"].startswith("application/problem+json")
    assert page.headers["Retry-After"] == problem.headers["Retry-After"] == "5"
