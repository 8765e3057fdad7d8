"""The same Idempotency-Key: twice, at the same time, after a lost reply, with another body."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone

from ledger import eventstore
from ledger.eventstore import default_store
from ledger.eventstore.memory import MemoryStore
from ledger.models import RequestKey
from ledger.rest.idempotency import KEPT_FOR, forget_old_keys
from tests.access.conftest import Caller, admit
from tests.access.probe import Probe

pytestmark = pytest.mark.urls("tests.access.probe")

NOTES = "/api/v1/notes"
DEADLINE_SECONDS = 60


@pytest.fixture(params=["postgres", "memory"])
def either_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run on a store that shares the transaction, and on one that does not."""
    from django.conf import settings

    from config.wiring import build_store

    if request.param == "memory":
        memory = MemoryStore()
        eventstore.install(lambda: memory)
    yield request.param
    eventstore.install(lambda: build_store(settings.ENV))


def events() -> int:
    return len(default_store().read_all().events)


@pytest.mark.usefixtures("either_store")
def test_a_repeat_is_answered_alike_and_done_once(ada: Caller) -> None:
    first = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")

    again = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")

    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first
    assert again["Idempotent-Replayed"] == "true"
    assert again["ETag"] == first["ETag"]
    assert events() == 1


@pytest.mark.usefixtures("either_store")
def test_without_a_key_a_repeat_is_done_again(ada: Caller) -> None:
    ada.post(NOTES, {"text": "hello"})
    ada.post(NOTES, {"text": "hello"})

    assert events() == 2


@pytest.mark.usefixtures("either_store")
@pytest.mark.parametrize("text", ["hello", "refused"])
def test_the_same_key_for_another_body_is_refused(ada: Caller, text: str) -> None:
    ada.post(NOTES, {"text": text}, Idempotency_Key="k1")
    before = events()

    other = ada.post(NOTES, {"text": "another"}, Idempotency_Key="k1")

    assert (other.status_code, other.json()["code"]) == (422, "key-used-for-another")
    assert events() == before


@pytest.mark.usefixtures("either_store")
def test_a_refusal_is_asked_again_because_its_reason_may_be_gone(ada: Caller) -> None:
    refused = ada.post(NOTES, {"text": "refused"}, Idempotency_Key="k1")
    ada.post(NOTES, {"text": "hello"})

    again = ada.post(NOTES, {"text": "refused"}, Idempotency_Key="k1")

    assert (refused.status_code, again.status_code) == (409, 409)
    assert "Idempotent-Replayed" not in again
    assert (refused.json()["details"], again.json()["details"]) == ({"notes": 0}, {"notes": 1})


@pytest.mark.usefixtures("either_store")
@pytest.mark.parametrize(("body", "status"), [({"txet": "hello"}, 422), ("{", 400)])
def test_a_body_that_was_never_accepted_leaves_the_key_free(
    ada: Caller, body: object, status: int
) -> None:
    wrong = ada.post(NOTES, body, Idempotency_Key="k1")

    right = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")

    assert (wrong.status_code, right.status_code) == (status, 201)


@pytest.mark.usefixtures("either_store")
def test_a_crash_of_ours_is_safe_to_repeat(ada: Caller, monkeypatch: Any) -> None:
    """The append went through where the store stands alone, and was undone where it does not."""
    failed = ada.post(NOTES, {"text": "broken"}, Idempotency_Key="k1")

    again = ada.post(NOTES, {"text": "broken"}, Idempotency_Key="k1")

    assert (failed.status_code, again.status_code) == (500, 500)
    assert events() == (0 if default_store().shares_django_transaction else 1)


def test_a_key_belongs_to_one_tenant(ada: Caller, bob: Caller) -> None:
    first = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")
    other = bob.post(NOTES, {"text": "other"}, Idempotency_Key="k1")

    assert (first.status_code, other.status_code) == (201, 201)
    assert "Idempotent-Replayed" not in other


def test_the_answer_is_kept_without_its_secret(ada: Caller) -> None:
    first = ada.post("/api/v1/secrets", {"text": "hello"}, Idempotency_Key="k1")

    again = ada.post("/api/v1/secrets", {"text": "hello"}, Idempotency_Key="k1")

    assert first.json()["secret"] == "hush"
    assert "secret" not in again.json()
    assert "hush" not in RequestKey.objects.get().answer


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "sch\u00f6n"])
def test_a_key_that_no_header_should_carry_is_refused(ada: Caller, key: str) -> None:
    response = ada.post(NOTES, {"text": "hello"}, Idempotency_Key=key)

    assert (response.status_code, response.json()["code"]) == (422, "key-unreadable")


def test_old_keys_are_forgotten(ada: Caller) -> None:
    ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")
    now = timezone.now()

    assert forget_old_keys(now=now) == 0
    assert forget_old_keys(now=now + KEPT_FOR) == 1


def in_thread(work: Callable[[], Any], answers: list[Any]) -> threading.Thread:
    def run() -> None:
        try:
            answers.append(work())
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.usefixtures("committed_store")
def test_a_second_request_while_the_first_runs_is_told_to_wait() -> None:
    ada = admit("ada-labs", "consumer")
    answers: list[Any] = []
    Probe.entered.clear()
    Probe.go_on.clear()
    first = in_thread(lambda: ada.post(NOTES, {"text": "slow"}, Idempotency_Key="k1"), answers)
    assert Probe.entered.wait(DEADLINE_SECONDS)

    meanwhile = ada.post(NOTES, {"text": "slow"}, Idempotency_Key="k1")
    Probe.go_on.set()
    first.join(DEADLINE_SECONDS)
    afterwards = ada.post(NOTES, {"text": "slow"}, Idempotency_Key="k1")

    assert (meanwhile.status_code, meanwhile["Retry-After"]) == (409, "1")
    assert meanwhile.json()["code"] == "still-in-progress"
    assert answers[0].status_code == 201
    assert afterwards["Idempotent-Replayed"] == "true"
    assert afterwards.json() == answers[0].json()
    assert events() == 1


@pytest.mark.usefixtures("committed_store")
def test_many_at_once_with_one_key_are_done_once() -> None:
    ada = admit("ada-labs", "consumer")
    key = str(uuid4())
    answers: list[Any] = []
    ask = lambda: ada.post(NOTES, {"text": "hello"}, Idempotency_Key=key)  # noqa: E731

    threads = [in_thread(ask, answers) for _ in range(6)]
    for thread in threads:
        thread.join(DEADLINE_SECONDS)

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len(answers) == 6
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert events() == 1


@pytest.mark.usefixtures("committed_store")
def test_the_answer_and_the_event_are_there_together_or_not_at_all(monkeypatch: Any) -> None:
    """The process fails after the append, before the answer is kept: as if nothing was asked."""
    ada = admit("ada-labs", "consumer")
    with monkeypatch.context() as broken:
        broken.setattr("ledger.rest.idempotency._keep", _fail)
        failed = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")
        assert (failed.status_code, events(), RequestKey.objects.count()) == (500, 0, 0)

    again = ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")

    assert (again.status_code, events(), RequestKey.objects.count()) == (201, 1, 1)


def test_the_command_id_derives_from_tenant_route_and_key(ada: Caller) -> None:
    ada.post(NOTES, {"text": "hello"}, Idempotency_Key="k1")

    meta = default_store().read_all().events[0].meta
    assert isinstance(meta.command_id, UUID)
    assert meta.command_id.version == 5
    assert meta.actor == f"user:{ada.user_id}"
    assert (meta.tenant_id, meta.token_id) == (ada.tenant_id, ada.token_id)


def _fail(*_args: object, **_options: object) -> str:
    raise OSError("disk full")
