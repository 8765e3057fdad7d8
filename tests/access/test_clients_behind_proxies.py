"""The client is who a trusted proxy names, and nobody is kept out by what others do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from config.web.proxies import Proxies, read_networks
from ledger.domain.addresses import client_behind, is_loopback
from ledger.models import Person
from ledger.signin import set_password
from tests.access.conftest import admit

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "correct horse battery"
TRUSTED = read_networks("127.0.0.1, ::1, 10.0.0.0/8, 2001:db8::/32")

HOPS = [
    ("203.0.113.9", "1.2.3.4", "203.0.113.9"),
    ("10.0.0.5", "", "10.0.0.5"),
    ("10.0.0.5", "198.51.100.7", "198.51.100.7"),
    ("10.0.0.5", "1.2.3.4, 198.51.100.7", "198.51.100.7"),
    ("10.0.0.5", "1.2.3.4, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
    ("10.0.0.5", "10.1.1.1, 10.2.2.2", "10.1.1.1"),
    ("::ffff:10.0.0.5", "198.51.100.7:5123", "198.51.100.7"),
    ("127.0.0.1", '"[2001:db9::7]:443"', "2001:db9::7"),
    ("2001:db8::1", "2001:db9::7", "2001:db9::7"),
    ("10.0.0.5", "198.51.100.7, unknown", "10.0.0.5"),
    ("10.0.0.5", "198.51.100.7,,", "10.0.0.5"),
    ("10.0.0.5", "127.0.0.1", "127.0.0.1"),
    ("10.0.0.5", "::ffff:198.51.100.7", "198.51.100.7"),
]


@pytest.mark.parametrize(("peer", "forwarded", "client"), HOPS)
def test_the_last_hop_that_no_proxy_of_ours_added_is_the_client(
    peer: str, forwarded: str, client: str
) -> None:
    assert client_behind(peer, forwarded, TRUSTED) == client


@given(st.text(max_size=30), st.ip_addresses(v=4))
def test_what_a_client_says_of_itself_changes_nothing(said: str, address: Any) -> None:
    behind = client_behind("10.0.0.5", f"{said},{address}", TRUSTED)

    if any(address in network for network in TRUSTED if network.version == 4):
        return
    assert behind == str(address)


def seen(peer: tuple[str, int] | None, *headers: tuple[bytes, bytes]) -> MutableMapping[str, Any]:
    found: list[MutableMapping[str, Any]] = []

    async def ordinary(scope: MutableMapping[str, Any], receive: object, send: object) -> None:
        found.append(scope)

    scope = {"type": "http", "scheme": "http", "client": peer, "headers": list(headers)}
    asyncio.run(Proxies(ordinary, TRUSTED)(scope, None, None))  # type: ignore[arg-type]
    return found[0]


def test_headers_that_come_twice_are_read_in_order() -> None:
    scope = seen(
        ("10.0.0.5", 9), (b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-for", b"198.51.100.7")
    )

    assert scope["client"] == ("198.51.100.7", 0)


def test_a_scheme_is_believed_of_a_trusted_proxy_alone() -> None:
    said = (b"x-forwarded-proto", b"https")

    assert seen(("10.0.0.5", 9), said)["scheme"] == "https"
    assert seen(("203.0.113.9", 9), said)["scheme"] == "http"
    assert seen(None, said, (b"x-forwarded-for", b"198.51.100.7"))["client"][0] == "198.51.100.7"


@pytest.mark.parametrize("text", ["10.0.0.5/8", "proxy.example", "10.0.0.0/33", "10.0.0.5;::1"])
def test_a_network_that_is_none_stops_the_start(tmp_path: Path, text: str) -> None:
    ended = started(tmp_path, OFFPEAK_TRUSTED_PROXIES=text)

    assert ended.returncode == 1
    assert ended.stderr.startswith("OFFPEAK_TRUSTED_PROXIES must be addresses and networks")


def started(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import config.settings"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "OFFPEAK_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("open_by", ["OFFPEAK_DEMO", "OFFPEAK_DEBUG"])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OFFPEAK_HOST", "0.0.0.0"),
        ("OFFPEAK_HOST", "::"),
        ("OFFPEAK_HOST", "192.168.1.5"),
        ("OFFPEAK_BASE_URL", "https://gpu.example"),
        ("OFFPEAK_BASE_URL", "http://192.168.1.5:8000"),
    ],
)
def test_no_command_begins_with_open_log_ins_on_a_public_address(
    tmp_path: Path, open_by: str, variable: str, value: str
) -> None:
    ended = started(tmp_path, **{open_by: "1", variable: value})

    assert ended.returncode == 1
    assert "served on loopback only" in ended.stderr


def failed(client: Client, email: str, address: str, *, times: int = 1) -> Any:
    for _ in range(times):
        answer = client.post(
            "/accounts/login/", {"login": email, "password": "guess"}, REMOTE_ADDR=address
        )
    return answer


def enters(email: str, address: str) -> bool:
    answer = Client().post(
        "/accounts/login/", {"login": email, "password": PASSWORD}, REMOTE_ADDR=address
    )
    return bool(answer.status_code == 302)


@pytest.fixture
def people(db: None) -> list[str]:
    emails = []
    for slug in ("acme", "other"):
        somebody = Person.objects.get(id=admit(slug, "operator").user_id)
        set_password(somebody, PASSWORD)
        emails.append(somebody.email)
    return emails


def test_wrong_passwords_of_others_keep_nobody_out(people: list[str]) -> None:
    ann, bob = people
    failed(Client(), ann, "10.9.9.9", times=30)
    failed(Client(), "nobody@acme.example", "10.9.9.9", times=30)

    assert enters(bob, "10.9.9.9")  # behind the same proxy
    assert enters(ann, "198.51.100.7")  # the account's own person, from elsewhere
    assert not enters(ann, "10.9.9.9")


def test_guesses_are_counted_for_all_processes_and_kept_over_a_restart(people: list[str]) -> None:
    from django.core.cache import caches

    failed(Client(), people[0], "10.9.9.9", times=5)
    del caches["default"]  # as another process, or this one started again, begins

    assert not enters(people[0], "10.9.9.9")


def test_guesses_from_everywhere_end_too(people: list[str]) -> None:
    for number in range(25):
        failed(Client(), people[0], f"198.51.100.{number}", times=4)

    assert not enters(people[0], "203.0.113.1")
    assert enters(people[1], "203.0.113.1")


@pytest.mark.parametrize(
    ("peer", "host", "forwarded", "is_open"),
    [
        ("127.0.0.1", "localhost:8000", "", True),
        ("::1", "[::1]:8000", "", True),
        ("127.0.0.1", "gpu.example", "", False),
        ("203.0.113.9", "localhost", "", False),
        ("203.0.113.9", "127.0.0.1", "", False),
        ("127.0.0.1", "localhost", "203.0.113.9", False),
        ("", "localhost", "", False),
    ],
)
def test_one_click_signs_in_at_the_demo_s_own_machine_alone(
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
    peer: str,
    host: str,
    forwarded: str,
    is_open: bool,
) -> None:
    monkeypatch.setattr(django_settings, "ENV", replace(django_settings.ENV, demo=True))
    monkeypatch.setattr(django_settings, "ALLOWED_HOSTS", ["*"])
    Person.objects.filter(email=people[0]).update(is_demo=True)
    about: dict[str, Any] = {"REMOTE_ADDR": peer, "HTTP_HOST": host}
    if forwarded:
        about["HTTP_X_FORWARDED_FOR"] = forwarded
    client = Client()

    shown = client.get("/accounts/login/", **about).context["demo_people"]
    answer = client.post("/demo/sign-in", {"email": people[0]}, **about)

    assert bool(shown) == is_open
    assert answer.status_code == (302 if is_open else 404)


def test_names_of_this_machine_are_known_in_each_spelling() -> None:
    assert all(map(is_loopback, ("LOCALHOST", "127.8.8.8", "[::1]", "a.localhost", "localhost.")))
    assert not any(map(is_loopback, ("", "localhost.example", "0.0.0.0", "10.0.0.1", "gpu")))
