"""Secrets over HTTP: set, listed and removed by name, and no value anywhere to be read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ledger.eventstore import default_store
from ledger.vault import VaultLocked, default_vault
from marketplace import secrets
from marketplace.domain.secrets import secret as rules
from marketplace.models.secrets import SecretRow, SecretValueRow
from tests.access.conftest import Caller, admit
from tests.marketplace.secrets.conftest import VALUE, read
from tests.marketplace.secrets.hunting import tables_with

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


def put(caller: Caller, name: str, value: Any = VALUE) -> Any:
    return caller.ask("PUT", f"/api/v1/secrets/{name}", {"value": value})


def listed(caller: Caller) -> list[dict[str, Any]]:
    read()
    found: list[dict[str, Any]] = caller.get("/api/v1/secrets").json()["data"]
    return found


def value_of(caller: Caller, name: str) -> str:
    values, _ = secrets.opened(default_vault(), caller.tenant_id, [name])
    return values[name].decode()


def test_a_secret_is_set_listed_by_name_and_opened_for_work_alone(ada: Caller) -> None:
    answer = put(ada, "HF_TOKEN")

    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    [shown] = listed(ada)
    assert (shown["name"], shown["version"]) == ("HF_TOKEN", 1)
    assert shown["user_id"] == str(ada.user_id)
    assert VALUE not in str(shown) + answer.content.decode()
    assert value_of(ada, "HF_TOKEN") == VALUE


def test_no_address_and_no_method_gives_a_value_back(ada: Caller) -> None:
    put(ada, "HF_TOKEN")

    for method in ("GET", "POST", "PATCH"):
        assert ada.ask(method, "/api/v1/secrets/HF_TOKEN", {}).status_code == 405


def test_a_new_value_is_a_new_version_and_the_old_one_is_gone(ada: Caller) -> None:
    put(ada, "HF_TOKEN")
    answer = put(ada, "HF_TOKEN", "another value")

    assert answer.json()["version"] == 2
    assert [each["version"] for each in listed(ada)] == [2]
    assert value_of(ada, "HF_TOKEN") == "another value"
    assert SecretValueRow.objects.count() == 1


def test_a_removed_secret_is_gone_with_its_value_and_its_versions_go_on(ada: Caller) -> None:
    put(ada, "HF_TOKEN")
    assert ada.delete("/api/v1/secrets/HF_TOKEN").status_code == 200

    assert listed(ada) == []
    assert not SecretValueRow.objects.exists()
    again = ada.delete("/api/v1/secrets/HF_TOKEN")
    assert (again.status_code, again.json()["code"]) == (404, "secret-unknown")
    assert put(ada, "HF_TOKEN").json()["version"] == 2


def test_a_value_is_in_no_table_no_log_and_no_answer(
    ada: Caller, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [put(ada, "HF_TOKEN"), put(ada, "9-unfit"), put(ada, "TOO_LONG", VALUE * 2_000)]
    said += [ada.ask("PUT", "/api/v1/secrets/ODD", {"value": [VALUE], VALUE[:7]: VALUE})]
    said += [
        ada.post("/api/v1/secrets/HF_TOKEN", f'{{"value": "{VALUE}"'),
        ada.ask("PUT", "/api/v1/secrets/HF_TOKEN", {"value": VALUE + "\0"}),
    ]
    read()

    assert [each.status_code for each in said] == [200, 422, 422, 422, 405, 422]
    assert tables_with(VALUE) == []
    shown = (
        "".join(each.content.decode() for each in said) + caplog.text + "".join(capfd.readouterr())
    )
    assert VALUE not in shown
    assert tables_with("HF_TOKEN") != [], "the hunt finds what is there"


def test_a_repeat_with_a_key_keeps_nothing_by_which_a_value_could_be_guessed(ada: Caller) -> None:
    from ledger.models import RequestKey

    for _ in range(2):
        answer = ada.ask("PUT", "/api/v1/secrets/PIN", {"value": "1234"})
    assert answer.json()["version"] == 2
    assert not RequestKey.objects.exists()


def test_another_organisation_has_its_own_secret_of_that_name(ada: Caller, bob: Caller) -> None:
    put(ada, "HF_TOKEN")
    put(bob, "HF_TOKEN", "the value of Bob")

    assert (value_of(ada, "HF_TOKEN"), value_of(bob, "HF_TOKEN")) == (VALUE, "the value of Bob")
    assert bob.delete("/api/v1/secrets/HF_TOKEN").status_code == 200
    assert [each["name"] for each in listed(ada)] == ["HF_TOKEN"]
    assert listed(bob) == []


@pytest.mark.parametrize("role", ["owner", "finance", "auditor"])
def test_who_runs_no_work_neither_sees_nor_sets_secrets(db: None, role: str) -> None:
    other = admit("elsewhere", role)

    assert other.get("/api/v1/secrets").status_code == 403
    assert put(other, "HF_TOKEN").status_code == 403


def test_who_may_bid_may_name_secrets_and_set_none(db: None) -> None:
    bidder = admit("ada-labs", "consumer", scopes=("bids:write",))

    assert bidder.get("/api/v1/secrets").status_code == 200
    refused = put(bidder, "HF_TOKEN")
    assert (refused.status_code, refused.json()["details"]["scope"]) == (403, "secrets:write")


@pytest.mark.parametrize("name", ["9LIVES", "with-dash", "OFFPEAK_TOKEN", "x" * 65, "é", "a=b"])
def test_a_name_that_no_variable_can_have_is_refused(ada: Caller, name: str) -> None:
    refused = put(ada, name)

    assert (refused.status_code, refused.json()["code"]) == (422, "secret-name-unfit")
    assert not SecretValueRow.objects.exists()


@pytest.mark.parametrize("value", ["é" * 16_385, "", 7, None, ["x"]])
def test_a_value_that_is_no_text_or_too_long_is_refused(ada: Caller, value: object) -> None:
    assert put(ada, "HF_TOKEN", value).status_code == 422
    assert not SecretValueRow.objects.exists()


@pytest.mark.parametrize("value", [" blanks around ", "two\nlines\n", "é" * 16_384])
def test_a_value_is_kept_as_it_came(ada: Caller, value: str) -> None:
    assert put(ada, "HF_TOKEN", value).status_code == 200
    assert value_of(ada, "HF_TOKEN") == value


def test_an_organisation_keeps_so_many_and_no_more(
    ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SECRETS_MAX", 2)
    first, second, third = put(ada, "A"), put(ada, "B"), put(ada, "C")

    assert [first.status_code, second.status_code, third.status_code] == [200, 200, 413]
    assert put(ada, "A", "a new value").status_code == 200


def test_a_row_that_was_moved_opens_for_nobody(ada: Caller, bob: Caller) -> None:
    put(ada, "HF_TOKEN")
    put(bob, "OTHER")
    hers = SecretValueRow.objects.get(tenant_id=ada.tenant_id)
    stolen = {"master": hers.master, "key": hers.key, "value": hers.value}
    SecretValueRow.objects.filter(tenant_id=bob.tenant_id).update(**stolen)
    with pytest.raises(VaultLocked):
        value_of(bob, "OTHER")
    SecretValueRow.objects.filter(tenant_id=ada.tenant_id).update(name="RENAMED")
    with pytest.raises(VaultLocked):
        value_of(ada, "RENAMED")
    SecretValueRow.objects.filter(tenant_id=ada.tenant_id).update(tenant_id=bob.tenant_id)
    with pytest.raises(VaultLocked):
        value_of(bob, "RENAMED")


def test_events_tell_names_versions_and_who(ada: Caller) -> None:
    put(ada, "HF_TOKEN")
    ada.delete("/api/v1/secrets/HF_TOKEN")

    secret_id = rules.secret_id_of(ada.tenant_id, "HF_TOKEN")
    events = list(default_store().read_stream(f"secret-{secret_id}"))
    assert [type(each.event).name for each in events] == [
        "marketplace.secret-set",
        "marketplace.secret-removed",
    ]
    assert {getattr(each.event, "user_id", None) for each in events} == {ada.user_id}
    assert VALUE not in repr(events)


def test_a_rebuild_keeps_the_values(ada: Caller) -> None:
    put(ada, "HF_TOKEN")
    read()
    SecretRow.objects.all().delete()

    assert value_of(ada, "HF_TOKEN") == VALUE
