"""A host's agent gets its token by a code, once, and puts a new one in its place."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from django.utils import timezone

from ledger.commands import revoke_token
from ledger.domain.ids import HostId, TenantId, TokenId
from ledger.domain.tokens import OVERLAP
from ledger.eventstore.port import stream_name
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import TokenRow
from ledger.projections.parties import TOKENS
from listings.commands import register_host, retire_host
from listings.commands.enrolling import make_enrolment_code
from listings.domain.enrolments import Enrolment, enrolment_of
from metering.agent.wire_of_tokens import ENROLMENT_PATH, TOKEN_PATH, TOKEN_TAKEN_PATH
from tests.access.conftest import Caller, admit
from tests.conftest import SOMEBODY

pytestmark = pytest.mark.django_db


class Host:
    """A registered host and what its machine sends."""

    def __init__(self, tenant_id: UUID, source: Any = "local") -> None:
        self.host_id, self.tenant_id = HostId(uuid4()), TenantId(tenant_id)
        register_host(
            PostgresStore(),
            host_id=self.host_id,
            tenant_id=self.tenant_id,
            title="rack 2",
            market="main",
            region="eu-west",
            source=source,
            by=SOMEBODY,
            now=timezone.now(),
        )

    def code(self, text: str = "K7Q4M-2XD9F", *, age: timedelta = timedelta(0)) -> str:
        make_enrolment_code(
            PostgresStore(),
            enrolment_id=enrolment_of(text, settings.SECRET_KEY.encode()),
            host_id=self.host_id,
            by=SOMEBODY,
            now=timezone.now() - age,
        )
        return text


def ask(path: str, proof: str, body: Any = None, **more: Any) -> Any:
    return Client(raise_request_exception=False).post(
        path,
        json.dumps(body if body is not None else {"nonce": uuid4().hex, "hostname": "n1"}),
        content_type="application/json",
        headers={"Authorization": proof} if proof else {},
        **more,
    )


def enrol(code: str, nonce: str = "", **more: Any) -> Any:
    body = {"nonce": nonce or uuid4().hex, "hostname": "n1"}
    return ask(ENROLMENT_PATH, f"Enrolment {code}", body, **more)


def follow() -> None:
    while follow_projections(PostgresStore(), (TOKENS,)):
        pass


def works(token: str) -> bool:
    follow()
    answer = Client().get("/api/v1/agent/assignments", headers={"Authorization": f"Bearer {token}"})
    return bool(answer.status_code == 200)


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("acme", "owner")


@pytest.fixture
def host(ada: Caller) -> Host:
    return Host(ada.tenant_id)


def test_a_code_is_exchanged_for_a_token_of_its_host_once(host: Host) -> None:
    code = host.code()
    given = enrol(code)
    again = enrol(code)

    assert given.status_code == 200, given.content
    assert given.json()["host_id"] == str(host.host_id)
    assert works(given.json()["token"])
    assert TokenRow.objects.get(host_id=host.host_id).scopes == ["agent"]
    assert (again.status_code, again.json()["code"]) == (409, "enrolment-code-used")
    assert again.json()["details"]["hostname"] == "n1"


@pytest.mark.parametrize("typed", ["k7q4m2xd9f", " K7Q4M 2XD9F ", "k7q4m-2xd9f"])
def test_a_code_may_be_typed_in_any_case_and_with_gaps(host: Host, typed: str) -> None:
    host.code()
    assert enrol(typed).status_code == 200


def test_an_answer_that_was_lost_is_had_by_asking_again(host: Host) -> None:
    code, nonce = host.code(), uuid4().hex
    first, again = enrol(code, nonce), enrol(code, nonce)

    assert first.json() == again.json()
    assert works(first.json()["token"])


def test_who_used_a_code_and_when_is_on_record_and_neither_code_nor_token(host: Host) -> None:
    code = host.code()
    token = enrol(code).json()["token"]
    enrolment_id = enrolment_of(code, settings.SECRET_KEY.encode())
    store = PostgresStore()

    made, used = store.read_stream(stream_name(Enrolment, enrolment_id))
    assert (made.meta.actor, used.meta.actor) == (SOMEBODY.actor, f"agent:{host.host_id}")
    assert used.event.hostname == "n1"  # type: ignore[attr-defined]  # HostEnrolled
    everything = "".join(f"{each.data!r} {each.meta}" for each in store.read_all(limit=1000).events)
    assert str(host.host_id) in everything
    assert code not in everything and code.replace("-", "") not in everything
    assert token not in everything and token[20:] not in everything


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("K7Q4M-2XD9G", "enrolment-code-unknown"),
        ("K7Q4M-2XD9", "enrolment-code-malformed"),
        ("K7Q4M-2XD0F", "enrolment-code-malformed"),
        ("K7Q4M-2XD9Ä".encode().decode("latin-1"), "enrolment-code-malformed"),
        ("", "enrolment-code-malformed"),
    ],
)
def test_a_wrong_code_is_refused(host: Host, typed: str, code: str) -> None:
    host.code()
    answer = enrol(typed)
    assert (answer.status_code, answer.json()["code"]) == (401, code)


def test_without_a_code_or_with_a_token_nobody_is_enrolled(host: Host, ada: Caller) -> None:
    for proof in ("", f"Bearer {ada.token}"):
        answer = ask(ENROLMENT_PATH, proof)
        assert (answer.status_code, answer.json()["code"]) == (401, "code-needed")


def test_a_code_expires_after_a_quarter_of_an_hour(host: Host) -> None:
    assert enrol(host.code(age=timedelta(minutes=14))).status_code == 200
    answer = enrol(host.code("22222-33333", age=timedelta(minutes=16)))
    assert (answer.status_code, answer.json()["code"]) == (409, "enrolment-code-expired")


def test_a_host_that_was_retired_meanwhile_is_not_enrolled(host: Host) -> None:
    code = host.code()
    retire_host(PostgresStore(), host_id=host.host_id, by=SOMEBODY, now=timezone.now())
    answer = enrol(code)

    assert (answer.status_code, answer.json()["code"]) == (409, "host-is-retired")
    follow()
    assert not TokenRow.objects.filter(host_id=host.host_id).exists()


def test_guessing_from_one_address_is_slowed_and_others_are_served(host: Host) -> None:
    code = host.code()
    guesses = [enrol("22222-22222").status_code for _ in range(12)]

    assert set(guesses[:10]) == {401} and guesses[-1] == 429
    assert enrol(code).status_code == 429
    assert enrol(code, REMOTE_ADDR="203.0.113.9").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_of_two_machines_with_one_code_at_once_one_is_enrolled() -> None:
    code = Host(admit("acme", "owner").tenant_id).code()
    answers, ready = [], threading.Barrier(4)

    def machine() -> None:
        ready.wait(timeout=60)
        answers.append(enrol(code))
        connections.close_all()

    machines = [threading.Thread(target=machine) for _ in range(4)]
    for each in machines:
        each.start()
    for each in machines:
        each.join(timeout=60)

    said = sorted(answer.status_code for answer in answers)
    assert said == [200, 409, 409, 409], [answer.content for answer in answers]
    follow()
    assert TokenRow.objects.filter(host_id__isnull=False).count() == 1


def rotate(token: str, nonce: str = "") -> Any:
    return ask(TOKEN_PATH, f"Bearer {token}", {"nonce": nonce or uuid4().hex})


def test_both_tokens_work_until_the_new_one_is_taken_up(host: Host) -> None:
    old = enrol(host.code()).json()["token"]
    assert works(old)
    new = rotate(old).json()["token"]

    assert works(old) and works(new)
    row = TokenRow.objects.get(prefix=old[:16])
    assert row.expires_at <= timezone.now() + OVERLAP

    taken = ask(TOKEN_TAKEN_PATH, f"Bearer {new}", {})
    assert taken.status_code == 200, taken.content
    assert works(new) and not works(old)
    assert ask(TOKEN_TAKEN_PATH, f"Bearer {new}", {}).status_code == 200
    assert works(new)


def test_the_same_number_gets_the_same_token_and_another_takes_its_place(host: Host) -> None:
    old = enrol(host.code()).json()["token"]
    follow()
    nonce = uuid4().hex
    first, again = rotate(old, nonce).json(), rotate(old, nonce).json()
    assert first == again
    assert works(first["token"])

    other = rotate(old).json()
    assert other["token"] != first["token"]
    assert other["old_works_until"] == first["old_works_until"], "nothing is prolonged"
    assert works(other["token"]) and not works(first["token"]) and works(old)


def test_a_revoked_token_gets_no_other(host: Host) -> None:
    old = enrol(host.code()).json()["token"]
    follow()
    row = TokenRow.objects.get(prefix=old[:16])
    revoke_token(
        PostgresStore(),
        token_id=TokenId(row.token_id),
        tenant_id=host.tenant_id,
        user_id=None,
        by=SOMEBODY,
        now=timezone.now(),
    )
    follow()
    answer = rotate(old)
    assert (answer.status_code, answer.json()["code"]) == (401, "token-no-longer-works")


def test_people_and_rented_machines_rotate_no_token(ada: Caller) -> None:
    answer = ask(TOKEN_PATH, f"Bearer {ada.token}")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope-missing")

    token = enrol(Host(ada.tenant_id, source="burst").code()).json()["token"]
    follow()
    refused = rotate(token)
    assert (refused.status_code, refused.json()["code"]) == (403, "token-of-rented-machine")


def test_who_tries_to_enrol_learns_of_no_host_by_a_number_too_short(host: Host) -> None:
    answer = ask(ENROLMENT_PATH, f"Enrolment {host.code()}", {"nonce": "x"})
    assert answer.status_code == 422
    assert enrol(host.code()).status_code == 200, "the code was not used up"
