"""What carries messages: one contract for both ways, and what each alone has to hold."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.deliveries import (
    ATTEMPTS_MAX,
    REST_SECONDS_MAX,
    SECRET_BYTES,
    UrlUnfit,
    may_go_to,
    need_url,
    next_attempt,
    rest,
    sign,
    write_secret,
)
from ledger.senders.mail import MailSender
from ledger.senders.port import Message, Sender
from ledger.senders.webhooks import WebhookSender
from tests.conftest import NOON
from tests.ledger.receivers import Receiver, mail_server, receiving, use_mail

SECRET, BEFORE = write_secret(b"k" * SECRET_BYTES), write_secret(b"b" * SECRET_BYTES)


@dataclass
class Way:
    """A sender and its receiver. refuse: from now on all is refused. close: nobody listens."""

    sender: Sender
    to: str
    refuse: Callable[[], None]
    close: Callable[[], None]
    heard: Callable[[], list[str]]


@pytest.fixture(params=["webhook", "mail"])
def way(request: pytest.FixtureRequest, settings: Any) -> Iterator[Way]:
    with ExitStack() as open_ones:
        if request.param == "webhook":
            receiver = open_ones.enter_context(receiving())
            yield Way(
                sender=posting(),
                to=f"{receiver.url}/hook",
                refuse=lambda: receiver.answers.update({"/hook": 503}),
                close=open_ones.close,
                heard=lambda: [body.decode() for _, body in receiver.at("/hook")],
            )
            return
        box = open_ones.enter_context(mail_server())
        use_mail(settings, box.port)
        yield Way(
            sender=MailSender(),
            to="ada@example.org",
            refuse=lambda: setattr(box, "answer", "550 no such person"),
            close=open_ones.close,
            heard=lambda: [text for _, text in box.mails],
        )


def posting(*, private: bool = True, timeout_seconds: float = 5) -> WebhookSender:
    return WebhookSender(clock=lambda: NOON, private=private, timeout_seconds=timeout_seconds)


def message(to: str, body: str = "A body") -> Message:
    return Message(
        message_id="0ff9ea40", to=to, title="A title", body=body, secrets=(SECRET, BEFORE)
    )


def test_what_the_receiver_takes_is_through(way: Way) -> None:
    assert way.sender.send(message(way.to)).is_through
    assert len(way.heard()) == 1
    assert "A body" in way.heard()[0]


def test_what_the_receiver_refuses_is_not_and_says_how(way: Way) -> None:
    way.refuse()
    outcome = way.sender.send(message(way.to))
    assert not outcome.is_through
    assert outcome.status in (503, None)
    assert outcome.words


def test_a_receiver_that_is_away_is_an_outcome(way: Way) -> None:
    way.close()
    outcome = way.sender.send(message(way.to))
    assert (outcome.is_through, outcome.status) == (False, None)
    assert outcome.words


def test_a_mail_names_its_message_the_same_each_time(settings: Any) -> None:
    with mail_server() as box:
        use_mail(settings, box.port)
        for _ in range(2):
            MailSender().send(message("ada@example.org"))
    [one, two] = [text for _, text in box.mails]
    assert "Message-ID: <0ff9ea40@gpu.example>" in one
    assert "Message-ID: <0ff9ea40@gpu.example>" in two
    assert "Subject: A title" in one


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as known:
        yield known


def test_a_post_is_signed_with_every_secret_that_is_valid(receiver: Receiver) -> None:
    body = json.dumps({"type": "notice.money"})
    posting().send(message(f"{receiver.url}/hook", body))
    [(headers, heard)] = receiver.at("/hook")

    assert heard == body.encode()
    assert headers["webhook-id"] == "0ff9ea40"
    assert headers["webhook-timestamp"] == str(int(NOON.timestamp()))
    both = headers["webhook-signature"].split()
    assert both == [sign([each], "0ff9ea40", NOON, heard) for each in (SECRET, BEFORE)]
    assert sign([SECRET], "0ff9ea40", NOON, heard + b" ") not in both


def test_the_signature_is_that_of_the_specification() -> None:
    """The example that the libraries of Standard Webhooks are tested with."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = datetime.fromtimestamp(1614265330, UTC)
    told = sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')
    assert told == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_no_redirect_is_followed(receiver: Receiver) -> None:
    receiver.answers["/moved"] = 302
    outcome = posting().send(message(f"{receiver.url}/moved"))
    assert (outcome.is_through, outcome.status) == (False, 302)
    assert receiver.at("/hook") == []


def test_an_answer_is_kept_in_part_as_a_table_can_hold_it(receiver: Receiver) -> None:
    assert posting().send(message(f"{receiver.url}/hook")).words == "heard   you"


def test_a_receiver_that_wants_no_more_is_gone(receiver: Receiver) -> None:
    receiver.answers["/hook"] = 410
    assert posting().send(message(f"{receiver.url}/hook")).is_gone


def test_a_receiver_that_never_answers_times_out(receiver: Receiver) -> None:
    outcome = posting(timeout_seconds=0.2).send(message(f"{receiver.url}/slow"))
    assert (outcome.is_through, outcome.status) == (False, None)


def test_a_receiver_that_gives_a_byte_now_and_then_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            made, _ = server.accept()
            with made, suppress(OSError):
                while True:
                    made.sendall(b"H")
                    threading.Event().wait(0.05)

        threading.Thread(target=drip, daemon=True).start()
        port = server.getsockname()[1]
        outcome = posting(timeout_seconds=0.5).send(message(f"http://127.0.0.1:{port}/"))
    assert not outcome.is_through


def test_the_address_is_looked_at_when_the_connection_is_made(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public name that leads to this machine is no way in."""
    port = int(receiver.url.rpartition(":")[2])

    def leads_here(host: str, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", leads_here)
    outcome = posting(private=False).send(message(f"https://hooks.example:{port}/hook"))
    assert not outcome.is_through
    assert "may not go" in outcome.words
    assert receiver.posts == []


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest",
        "https://localhost/",
        "https://a:b@hooks.example/",
        "https://hooks.example/#x",
        "https://hooks.example:99999/",
        "https:///x",
        "ftp://hooks.example/",
        "https://hooks.example/ x",
        "https://hooks.example/\r\nHost: x",
        "https://hooks.example/" + "x" * 500,
    ],
)
def test_a_webhook_leads_to_a_public_host_by_https(url: str) -> None:
    with pytest.raises(UrlUnfit):
        need_url(url, private=False)


def test_where_allowed_it_leads_into_the_own_network_but_never_to_a_clouds_keys() -> None:
    for url in ("http://127.0.0.1:8/x", "http://10.0.0.1/", "https://localhost/", "http://a.b/"):
        assert need_url(url, private=True) == url
    for url in ("http://169.254.169.254/", "http://[fe80::1]/", "http://0.0.0.0/"):
        with pytest.raises(UrlUnfit):
            need_url(url, private=True)


@given(st.ip_addresses())
def test_only_global_addresses_are_public(address: Any) -> None:
    if may_go_to(address, private=False):
        assert address.is_global
        assert not address.is_link_local
        mapped = getattr(address, "ipv4_mapped", None)
        assert mapped is None or mapped.is_global
    assert not may_go_to(ip_address("169.254.169.254"), private=True)


@given(st.integers(1, 100))
def test_a_message_is_tried_at_most_eight_times_within_a_day(attempts: int) -> None:
    again = next_attempt(attempts, now=NOON)
    assert (again is None) == (attempts >= ATTEMPTS_MAX)
    at = NOON
    for number in range(1, ATTEMPTS_MAX):
        later = next_attempt(number, now=at)
        assert later is not None and later > at
        at = later
    assert timedelta(hours=12) < at - NOON < timedelta(days=1)


@given(st.integers(1, 10_000))
def test_a_receiver_that_fails_is_left_alone_longer_and_longer_up_to_an_hour(failures: int) -> None:
    now, later = rest(failures, now=NOON), rest(failures + 1, now=NOON)
    assert NOON < now <= later <= NOON + timedelta(seconds=REST_SECONDS_MAX)
