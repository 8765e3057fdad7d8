"""The API describes itself completely: every route, every answer, without a guess."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from config.urls import api_urls
from ledger.rest import Endpoint
from ledger.rest.problems import MEDIA_TYPE

PREFIX = "/api/v1/"


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    """The document as served; making it fails where anything about a route is guessed."""
    written = StringIO()
    call_command(
        "spectacular", validate=True, fail_on_warn=True, format="openapi-json", stdout=written
    )
    document: dict[str, Any] = json.loads(written.getvalue())
    return document


def operations(description: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }


def test_every_method_of_every_route_is_described(description: dict[str, Any]) -> None:
    handled = set()
    for each in api_urls:
        endpoint: type[Endpoint] = each.callback.view_class  # type: ignore[attr-defined]  # as_view() sets it
        path = PREFIX + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(each.pattern))
        handled |= {(method, path) for method in endpoint.scopes}

    assert set(operations(description)) == handled


def test_names_of_operations_are_unique_and_not_numbered(description: dict[str, Any]) -> None:
    names = [each["operationId"] for each in operations(description).values()]

    assert len(names) == len(set(names))
    assert [name for name in names if re.search(r"_[0-9]+$", name)] == []


def test_every_operation_says_how_it_succeeds_and_how_it_refuses(
    description: dict[str, Any],
) -> None:
    for where, operation in operations(description).items():
        answers = operation["responses"]
        good = [status for status in answers if status < "300"]
        assert good, where
        assert all(answers[status].get("content") for status in good), where
        refusals = {status for status in answers if status >= "400"}
        assert refusals >= {"401", "403", "404", "409", "422", "429", "503"}, where
        for status in refusals:
            schema = answers[status]["content"][MEDIA_TYPE]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, (where, status)


def test_every_operation_is_proved_with_a_token_or_a_session(description: dict[str, Any]) -> None:
    schemes = description["components"]["securitySchemes"]
    assert (schemes["token"]["type"], schemes["token"]["scheme"]) == ("http", "bearer")
    for where, operation in operations(description).items():
        by_code = where == ("POST", "/api/v1/agent/enrolment")
        proofs: list[dict[str, list[str]]]
        proofs = [{"enrolment": []}] if by_code else [{"token": []}, {"session": []}]
        assert operation["security"] == proofs, where


def test_lists_are_pages_and_writes_take_an_idempotency_key(description: dict[str, Any]) -> None:
    found = operations(description)
    answer = found["GET", "/api/v1/leases"]["responses"]["200"]["content"]["application/json"]
    name = answer["schema"]["$ref"].rpartition("/")[2]
    assert set(description["components"]["schemas"][name]["properties"]) == {"data", "next"}
    for (method, path), operation in found.items():
        headers = {each["name"] for each in operation["parameters"] if each["in"] == "header"}
        assert ("Idempotency-Key" in headers) == (method != "GET"), (method, path)


def test_every_instant_is_written_as_one(description: dict[str, Any]) -> None:
    plain = {
        f"{shape}.{name}"
        for shape, schema in description["components"]["schemas"].items()
        if not shape.startswith("Weekly")  # wall times, in a zone of their own
        for name, field in schema.get("properties", {}).items()
        if (name.endswith("_at") or name in {"since", "until"})
        and field.get("type") == "string"
        and field.get("format") not in {"date-time", "date"}
    }
    assert plain == set()


def test_every_operation_says_in_a_line_what_it_does(description: dict[str, Any]) -> None:
    for where, operation in operations(description).items():
        summary = operation.get("summary", "")
        assert 5 <= len(summary) <= 160 and not summary.endswith("."), (where, summary)


def test_every_parameter_of_a_list_is_bounded(description: dict[str, Any]) -> None:
    for where, operation in operations(description).items():
        for each in operation["parameters"]:
            if each["schema"].get("type") == "integer":
                assert "minimum" in each["schema"], (where, each["name"])


def test_amounts_that_are_answered_may_be_negative_and_those_sent_may_not(
    description: dict[str, Any],
) -> None:
    shapes = description["components"]["schemas"]
    answered = shapes["AccountShown"]["properties"]["available"]["pattern"]
    sent = shapes["AddFunds"]["properties"]["amount"]["pattern"]

    assert re.match(answered, "-32999.490000000") and re.match(answered, "2.15")
    assert re.match(sent, "2.15") and not re.match(sent, "-2.15")


def test_numbers_that_are_sent_have_their_bounds(description: dict[str, Any]) -> None:
    asked = description["components"]["schemas"]["AskBid"]["properties"]

    assert (asked["gpus"]["minimum"], asked["duration_seconds"]["minimum"]) == (1, 1)
    assert asked["gpus"]["maximum"] < asked["duration_seconds"]["maximum"]
    assert asked["query"]["maxLength"] > 0


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("accounts/{account_id}/statement", {"opening", "closing", "totals", "data", "next"}),
        ("trial-balance", {"data", "others"}),
        ("spend", {"data", "next"}),
        ("exports/manifest", {"rows", "sums", "sha256", "position"}),
        ("quotas/limits", {"data", "next"}),
    ],
)
def test_what_is_worked_out_has_a_schema_too(
    description: dict[str, Any], path: str, fields: set[str]
) -> None:
    answer = operations(description)["GET", PREFIX + path]["responses"]["200"]
    name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]

    assert set(description["components"]["schemas"][name]["properties"]) >= fields
