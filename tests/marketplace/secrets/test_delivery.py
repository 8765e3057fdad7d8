"""The server hands a lease's secrets to the host it runs on, while it is to run, and notes that."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain.ids import HostId, LeaseId
from ledger.eventstore import default_store
from marketplace.domain.secrets import secret as rules
from marketplace.models.leases import LeaseShareRow
from metering.agent import sealing, wire
from tests.access.conftest import Caller
from tests.marketplace.secrets.conftest import VALUE
from tests.marketplace.secrets.hunting import tables_with
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit
from tests.metering.host_agent import host_token

pytestmark = [pytest.mark.django_db, pytest.mark.urls("config.urls")]


class Asking:
    """The agent of a lease's host."""

    def __init__(self, share: LeaseShareRow) -> None:
        self.lease_id = share.lease_id
        self.token = host_token(share.host_id, share.owner_id)
        self.pair, self.attempt_id = sealing.Pair(), uuid4()

    def ask(self, lease_id: UUID | None = None, **more: Any) -> Any:
        asked = {
            "lease_id": str(lease_id or self.lease_id),
            "attempt_id": str(self.attempt_id),
            "public_key": base64.b64encode(self.pair.public).decode(),
            **more,
        }
        return Client(raise_request_exception=False).post(
            wire.SECRETS_PATH,
            json.dumps(asked),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}", "Idempotency-Key": "k1"},
        )

    def opened(self, answer: Any) -> dict[str, str]:
        assert answer.status_code == 200, answer.content
        sealed = base64.b64decode(answer.json()["sealed"])
        said = json.loads(self.pair.open(f"{self.lease_id} {self.attempt_id}", sealed))
        return {name: base64.b64decode(value).decode() for name, value in said.items()}


@pytest.fixture
def leased(ada: Caller, unit: str, market: Market) -> LeaseShareRow:
    """A lease that is to run and whose work names a secret."""
    ada.ask("PUT", "/api/v1/secrets/HF_TOKEN", {"value": VALUE})
    ada.ask("PUT", "/api/v1/secrets/UNNAMED", {"value": "nobody asked for this"})
    work = {"kind": "other", "command": ["true"], "secrets": ["HF_TOKEN"]}
    placed = ada.post("/api/v1/bids", body(unit, workload=work))
    assert placed.status_code == 201, placed.content
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()
    LeaseShareRow.objects.update(phase="run")
    return LeaseShareRow.objects.get()


def test_the_host_of_a_lease_gets_what_its_work_names_and_that_is_noted(
    ada: Caller, leased: LeaseShareRow
) -> None:
    agent = Asking(leased)
    answer = agent.ask()

    assert agent.opened(answer) == {"HF_TOKEN": VALUE}
    assert VALUE.encode() not in answer.content
    assert base64.b64encode(VALUE.encode()) not in answer.content
    assert tables_with(VALUE) == []
    read()
    shown = {each["name"]: each for each in ada.get("/api/v1/secrets").json()["data"]}
    assert shown["HF_TOKEN"]["delivered_lease_id"] == str(leased.lease_id)
    assert shown["UNNAMED"]["delivered_at"] is None
    delivery_id = rules.delivery_id_of(LeaseId(leased.lease_id), HostId(leased.host_id))
    [event] = [each.event for each in default_store().read_stream(f"delivery-{delivery_id}")]
    assert VALUE not in repr(event) and "HF_TOKEN" in repr(event)


def test_each_attempt_is_answered_anew_with_the_newest_value(
    ada: Caller, leased: LeaseShareRow
) -> None:
    first, second = Asking(leased), Asking(leased)
    first.ask()
    ada.ask("PUT", "/api/v1/secrets/HF_TOKEN", {"value": "a newer value"})
    answer = second.ask()

    assert second.opened(answer) == {"HF_TOKEN": "a newer value"}
    with pytest.raises(sealing.SealBroken):
        first.opened(answer)


def test_nobody_gets_them_but_the_host_on_which_the_lease_is_to_run(
    ada: Caller, bob: Caller, leased: LeaseShareRow
) -> None:
    stranger = Asking(leased)
    stranger.token = host_token(uuid4(), bob.tenant_id)
    agent = Asking(leased)
    person = Asking(leased)
    person.token = ada.token

    for refused in (stranger.ask(), agent.ask(uuid4())):
        assert (refused.status_code, refused.json()["code"]) == (409, "lease-not-to-run")
    assert person.ask().status_code == 403
    for phase in ("stop", "warn", "none"):
        LeaseShareRow.objects.update(phase=phase)
        assert agent.ask().json()["code"] == "lease-not-to-run"
    LeaseShareRow.objects.update(phase="run", ends_at=timezone.now())
    assert agent.ask().json()["code"] == "lease-not-to-run"


def test_a_secret_that_was_removed_meanwhile_is_said_to_be_missing(
    ada: Caller, leased: LeaseShareRow
) -> None:
    ada.delete("/api/v1/secrets/HF_TOKEN")

    refused = Asking(leased).ask()

    assert (refused.status_code, refused.json()["code"]) == (409, "secret-missing")
    assert refused.json()["details"] == {"secrets": ["HF_TOKEN"]}
    assert {"secret-missing", "lease-not-to-run", "too-many-deliveries"} <= wire.FINAL


def test_they_are_handed_out_so_often_and_no_more(
    leased: LeaseShareRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "DELIVERIES_MAX", 2)
    agent = Asking(leased)

    assert [agent.ask().status_code for _ in range(3)] == [200, 200, 409]


@pytest.mark.parametrize("key", ["A" * 43 + "=", "!" * 44, "A" * 44, "AAAA"])
def test_what_is_no_public_key_is_refused(leased: LeaseShareRow, key: str) -> None:
    refused = Asking(leased).ask(public_key=key)

    assert (refused.status_code, refused.json()["code"]) == (422, "message-unreadable")
