"""Numbers are bounded as they are read, and text that is none is told, wherever it comes in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import pytest
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker

from ledger.domain.whole_numbers import whole_number
from ledger.rest.rendering import PlainJson
from tests.access.world import Party, follow, found
from tests.kept import kept

pytestmark = pytest.mark.django_db

NO_NUMBERS = [
    "", " ", "1 ", " 1", "+1", "-1", "-0", "1.0", "1e1", "0x1", "1_0", "\u0661", "\uff11", "\u00b2",
    "9" * 41, "9" * 5_000, "1\n", "None", "\u2212" + "1",
]  # fmt: skip
NUMBERED = [
    ("hosts", "limit"),
    ("bids", "limit"),
    ("market/tape", "limit"),
    ("market/prices", "hours"),
    ("market/index", "hours"),
    ("hosts", "after"),
    ("exports/manifest?period=2026-11&format=focus", "position"),
]
NO_TEXTS = ["\ud83d", "\udc00x", "a\0b"]


@pytest.fixture(scope="module")
def numbers(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Party]:
    with kept(django_db_blocker) as made:
        party = found("numbers")
        follow()
    yield party
    made.end()


@pytest.fixture
def party(numbers: Party, db: None) -> Party:
    return numbers


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_whole_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"no whole number|not between"):
        whole_number(text, least=0, most=10**6)


def test_bounds_hold_for_the_number_and_not_for_its_digits() -> None:
    assert whole_number("007", least=1, most=7) == 7
    assert whole_number("0" * 39 + "7", least=1, most=7) == 7
    for text in ("00000000100000", "8", "0", "000"):
        with pytest.raises(ValueError, match="not between"):
            whole_number(text, least=1, most=7)


def test_every_number_of_an_address_is_read_so(party: Party) -> None:
    for (path, name), text in product(NUMBERED, (*NO_NUMBERS, "00000000100000000000000000000")):
        sign = "&" if "?" in path else "?"
        answer = party.caller.get(f"/api/v1/{path}{sign}{name}={quote(text)}")
        assert answer.status_code == 422, (text[:20], answer.content)
        assert answer["Content-Type"] == "application/problem+json"


def test_a_page_size_with_leading_zeros_is_what_it_says(party: Party) -> None:
    assert party.caller.get("/api/v1/hosts?limit=001").status_code == 200
    assert party.caller.get("/api/v1/hosts?limit=00000000100000").json()["code"] == (
        "limit-out-of-range"
    )


BODIES = [
    ("POST", "bids", "placement"),
    ("POST", "bids", "service_class"),
    ("POST", "bids", "subscriber_id"),
    ("POST", "bids", "limit"),
    ("POST", "bids", "deadline"),
    ("POST", "bids", "gpus"),
    ("POST", "bids", "markets"),
    ("POST", "bids", "workload"),
    ("POST", "bids", "resume"),
    ("POST", "tokens", "scopes"),
    ("POST", "tokens", "expires_at"),
    ("POST", "members", "email"),
    ("POST", "accounts", "kind"),
    ("POST", "quotas", "node"),
    ("POST", "quotas/limits", "scope"),
    ("POST", "quotas/trials", "policies"),
    ("POST", "offers", "windows"),
    ("POST", "offers", "gpu_uuids"),
    ("POST", "hosts", "labels"),
    ("PUT", "agent/host", "hostname"),
    ("POST", "agent/samples", "batch"),
]


def test_a_value_that_is_no_text_is_told(party: Party) -> None:
    for (method, path, field), text in product(BODIES, NO_TEXTS):
        caller = party.agent if path.startswith("agent/") else party.caller
        for value in (text, [text], {"a": text}, [{"kind": text, "b": [text]}]):
            answer = caller.ask(method, f"/api/v1/{path}", {field: value})
            assert answer.status_code == 422, (value, answer.content)
            said = json.dumps(answer.json())
            assert "which is no text" in said


def test_a_name_that_is_no_text_is_told(party: Party) -> None:
    for text, form in product(NO_TEXTS, range(3)):
        bodies = {text: 1}, {"workload": {text: 1}}, {"workload": [{text: text}]}
        answer = party.caller.post("/api/v1/bids", bodies[form])
        assert (answer.status_code, answer.json()["code"]) == (400, "body-unreadable")


QUERIES = [
    ("state=%ff", "parameter-no-text"),
    ("state=%ed%a0%bd", "parameter-no-text"),
    ("%00=1", "parameter-no-text"),
    ("state=a%00b", "parameter-no-text"),
    ("cursor=" + "A" * 3_000, "parameter-too-long"),
    ("cursor=%F0%9F%9A%80", "cursor-unreadable"),
    ("cursor=", "cursor-unreadable"),
    ("stat=open", "parameter-unknown"),
    ("limit=1&limit=2", "parameter-repeated"),
]


def test_a_query_that_makes_no_sense_is_told(party: Party) -> None:
    for query, code in QUERIES:
        answer = party.caller.get(f"/api/v1/bids?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, code), answer.content


HEADERS = ("Idempotency-Key", "If-Match", "X-Request-ID", "Offpeak-After", "Authorization")
NO_HEADERS = ("\xff\xfe", "\x00", "9" * 5_000, "\xb2", '"\xb2"', "\xd9\xa1")


def test_a_header_that_makes_no_sense_fails_nothing(party: Party) -> None:
    for name, value in product(HEADERS, NO_HEADERS):
        headers = {"Authorization": f"Bearer {party.caller.token}", name: value}
        answer = Client(raise_request_exception=False).post(
            "/api/v1/tokens", b"{}", content_type="application/json", headers=headers
        )
        assert answer.status_code in (401, 422), (value, answer.content)


def test_a_path_that_makes_no_sense_is_nothing(party: Party) -> None:
    for path in (
        "bids/%00",
        "bids/%ff",
        "bids/%ed%a0%bd",
        "bids/" + "9" * 5_000,
        "%00",
        "bids/\u0661",
    ):
        answer = party.caller.get(f"/api/v1/{path}")
        assert answer.status_code == 404, path
        assert answer["Content-Type"] == "application/problem+json"


def test_an_overlong_text_is_told_by_its_field(party: Party) -> None:
    unit = str(party.ids["subscriber_id"])
    body = {"subscriber_id": unit, "gpus": 1, "duration_seconds": 3_600, "limit": "1.00"}
    body |= {"service_class": "on-demand", "workload": {"kind": "other"}}
    for field in ("query", "market", "good_till", "currency", "cost_centre"):
        for length in (300, 9_999, 100_000):
            answer = party.caller.post("/api/v1/bids", {**body, field: "x" * length})
            assert 400 <= answer.status_code < 500, (field, length, answer.content)


def test_all_that_is_wrong_is_told_at_once(party: Party) -> None:
    answer = party.caller.post(
        "/api/v1/bids", {"gpu": 1, "gpus": "two", "limit": 2.5, "workload": {"x": 1}}
    )

    told = {each["pointer"]: each["code"] for each in answer.json()["errors"]}
    assert told["/gpu"] == "unknown-field"
    assert told["/gpus"] == "not-a-whole-number"
    assert told["/limit"] == "amount-not-a-string"
    assert told["/service_class"] == "required"
    assert (told["/workload/x"], told["/workload/kind"]) == ("unknown-field", "required")


def test_an_answer_can_quote_what_utf_8_lacks() -> None:
    assert json.loads(PlainJson().render({"said": "x\ud83dy"})) == {"said": "x\ud83dy"}
    assert PlainJson().render({"said": "Zürich"}) == '{"said":"Zürich"}'.encode()
