"""Every answer that is not a success has the one shape, and says what to do."""

from __future__ import annotations

import json

import pytest

from tests.access.conftest import Caller

pytestmark = pytest.mark.urls("tests.access.probe")

NOTES = "/api/v1/notes"


def test_a_refusal_carries_its_code_figures_and_advice(ada: Caller) -> None:
    request_id = "0190d2f0-0000-7000-8000-000000000001"
    response = ada.post(NOTES, {"text": "refused"}, X_Request_ID=request_id)

    assert response.status_code == 409
    assert response["Content-Type"] == "application/problem+json"
    assert response["X-Request-ID"] == request_id
    assert response.json() == {
        "type": "/docs/problems#note-refused",
        "title": "Conflict",
        "status": 409,
        "detail": "That note is not wanted.",
        "instance": NOTES,
        "code": "note-refused",
        "details": {"notes": 0},
        "advice": "Write another.",
        "request_id": request_id,
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "body-unreadable"),
        (b'{"text": NaN}', 400, "body-unreadable"),
        (b'{"text": "a", "text": "b"}', 400, "body-unreadable"),
        (b'{"text": "\xff"}', 400, "body-unreadable"),
        (b"[" * 200_000, 400, "body-unreadable"),
        (b'{"count": ' + b"9" * 5_000 + b"}", 400, "body-unreadable"),
        (b"[]", 422, "body-invalid"),
        (b"7", 422, "body-invalid"),
    ],
)
def test_a_body_that_is_no_object_is_refused(
    ada: Caller, body: bytes, status: int, code: str
) -> None:
    response = ada.post(NOTES, body)

    assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("txet", "x", "unknown-field"),
        ("text", 7, "not-a-string"),
        ("text", "a\0b", "null-characters-not-allowed"),
        ("text", "\ud800", "surrogate-characters-not-allowed"),
        ("text", "x" * 51, "max-length"),
        ("price", 2.15, "amount-not-a-string"),
        ("price", 2, "amount-not-a-string"),
        ("price", "NaN", "amount-unreadable"),
        ("price", "1e3", "amount-unreadable"),
        ("price", "0.0000000001", "amount-too-fine"),
        ("price", "9000000001", "amount-too-large"),
        ("price", "-1", "amount-too-large"),
        ("at", "2026-01-05T12:00:00", "moment-without-offset"),
        ("at", "2026-01-05", "moment-unreadable"),
        ("at", "2026-02-30T12:00:00Z", "moment-unreadable"),
        ("at", 1767614400, "moment-unreadable"),
        ("at", "0001-01-01T00:00:00+14:00", "moment-unreadable"),
        ("at", "9999-12-31T23:59:59Z", "moment-out-of-range"),
        ("count", 10**30, "out-of-range"),
        ("count", -1, "out-of-range"),
        ("count", True, "not-a-whole-number"),
        ("count", "5", "not-a-whole-number"),
        ("count", 5.0, "not-a-whole-number"),
        ("length", 59, "out-of-range"),
        ("length", 90.5, "not-a-whole-number"),
    ],
)
def test_a_value_that_is_not_meant_exactly_so_is_refused(
    ada: Caller, field: str, value: object, code: str
) -> None:
    response = ada.post(NOTES, {"text": "hello", field: value})

    problem = response.json()
    assert response.status_code == 422, problem
    assert problem["code"] == "body-invalid"
    errors = [(error["pointer"], error["code"]) for error in problem["errors"]]
    assert errors == [(f"/{field}", code)]


def test_times_are_answered_in_utc(ada: Caller) -> None:
    response = ada.post(NOTES, {"text": "hello", "at": "2026-01-05T12:00:00.5+01:00"})

    assert response.json()["at"] == "2026-01-05T11:00:00.500000Z"


def test_what_the_framework_refuses_has_the_same_shape(ada: Caller) -> None:
    wrong_kind = ada.post(NOTES, "text=hello", content_type="application/x-www-form-urlencoded")
    wrong_method = ada.post("/api/v1/agent", {})
    nowhere = ada.get("/api/v1/nowhere")
    too_large = ada.post(NOTES, json.dumps({"text": "x" * 2_200_000}))

    answers = [
        (each.status_code, each["Content-Type"])
        for each in (wrong_kind, wrong_method, nowhere, too_large)
    ]
    assert answers == [(status, "application/problem+json") for status in (415, 405, 404, 413)]
    assert wrong_method["Allow"] == "GET"


def test_a_failure_of_ours_shows_nothing_of_our_inside(ada: Caller) -> None:
    response = ada.post(NOTES, {"text": "broken"})

    assert response.status_code == 500
    assert response.json()["code"] == "unexpected"
    assert "secret inside" not in response.content.decode()
