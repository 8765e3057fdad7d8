"""What goes wrong is a page of ours with a way back; a part of a page never becomes a page."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from config.urls import *  # noqa: F403  # the product's addresses, and handlers
from config.urls import urlpatterns as product
from ledger.eventstore.port import StoreError
from tests.pages.world import CONSUMER, World

HOST = "testserver"
PART: dict[str, Any] = {"HTTP_HX_REQUEST": "true"}
FAILURES = {
    "forbidden": (PermissionDenied, 403),
    "malformed": (SuspiciousOperation, 400),
    "too-big": (RequestDataTooBig, 413),
    "broken": (RuntimeError, 500),
    "away": (StoreError, 503),
}


def fail(request: HttpRequest, how: str) -> HttpResponse:
    """Fail as a view of ours might."""
    raise FAILURES[how][0]("inside")


urlpatterns = [*product, path("fail/<str:how>", fail), path("api/v1/fail/<str:how>", fail)]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def quiet(settings: Any) -> None:
    """Answer as in production; the test client alone would raise what a view raises."""
    settings.DEBUG = False


def visitor(client: Client) -> Client:
    client.raise_request_exception = False
    return client


def is_page(answer: Any) -> bool:
    text = answer.content.decode()
    return text.count("<main") == 1 and text.count("<h1") == 1 and 'href="/"' in text


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("known", [False, True])
def test_a_failure_is_a_page_of_ours(client: Client, world: World, how: str, known: bool) -> None:
    asking = visitor(world.member(CONSUMER, "consumer") if known else client)

    answer = asking.get(f"/fail/{how}")

    assert answer.status_code == FAILURES[how][1]
    assert is_page(answer)
    assert b"inside" not in answer.content
    assert answer.has_header("Retry-After") is (answer.status_code == 503)


@pytest.mark.parametrize("how", FAILURES)
def test_a_failure_of_the_api_is_a_problem(client: Client, how: str) -> None:
    answer = visitor(client).get(f"/api/v1/fail/{how}")

    assert answer.status_code == FAILURES[how][1]
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.has_header("Retry-After") is (answer.status_code == 503)


@pytest.mark.parametrize("how", FAILURES)
def test_a_failure_of_a_part_is_a_line_of_text(world: World, how: str) -> None:
    answer = visitor(world.member(CONSUMER, "consumer")).get(f"/fail/{how}", **PART)

    assert answer.status_code == FAILURES[how][1]
    assert answer.content.startswith(b"<p data-refusal>")
    assert b"<main" not in answer.content and b"<h1" not in answer.content


@pytest.mark.parametrize(
    "address", ["/nowhere", "/docs/nowhere/", "/static/nowhere.css", "/leases/7", "/demo/sign-out"]
)
@pytest.mark.parametrize("known", [False, True])
def test_an_unknown_address_is_a_page_of_ours(
    client: Client, world: World, address: str, known: bool
) -> None:
    answer = (world.member(CONSUMER, "consumer") if known else client).get(address)

    assert answer.status_code == 404
    assert is_page(answer)


@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("get", "/demo/sign-in"),
        ("get", "/settings/organisation"),
        ("get", "/fairness/policies/together"),
        ("get", "/offers/preview"),
        ("put", "/bids/new"),
        ("delete", "/settings"),
    ],
)
def test_a_method_that_an_address_does_not_take_is_told_on_a_page(
    world: World, method: str, address: str
) -> None:
    answer = getattr(world.member(CONSUMER, "consumer"), method)(address)

    assert answer.status_code == 405
    assert answer["Allow"]
    assert is_page(answer)


def test_too_many_log_ins_get_a_page_of_ours(client: Client, db: None, rf: Any) -> None:
    from config.web.errors import too_many_tries

    answer = too_many_tries(rf.get("/accounts/login/"))

    assert answer.status_code == 429
    assert is_page(answer)


def test_a_part_sends_the_whole_page_to_the_log_in_and_back(client: Client) -> None:
    lease = f"/leases/{uuid4()}"

    answer = client.get(
        f"{lease}/state", **PART, HTTP_HX_CURRENT_URL=f"http://{HOST}{lease}?tab=usage"
    )

    assert answer.status_code == 401
    assert answer["HX-Redirect"] == (
        "/accounts/login/?next="
        + f"{lease}?tab=usage".replace("/", "%2F").replace("?", "%3F").replace("=", "%3D")
    )
    assert answer.content == b""


@pytest.mark.parametrize(
    "told",
    [
        "https://evil.example/leases",
        "//evil.example/leases",
        "javascript:alert(1)",
        f"http://{HOST}//evil.example",
        f"http://{HOST}/\\evil.example",
        f"http://{HOST}@evil.example/",
        f"http://{HOST}/accounts/login/?next=/x",
        "http://[",
        "",
        "x" * 10_000,
    ],
)
def test_a_part_never_leads_out_of_the_site(client: Client, told: str) -> None:
    answer = client.get("/bids", **PART, HTTP_HX_CURRENT_URL=told)

    assert answer["HX-Redirect"] == "/accounts/login/?next=%2F"


def test_a_script_that_is_not_htmx_gets_no_page_either(client: Client) -> None:
    answer = client.get("/bids", HTTP_SEC_FETCH_DEST="empty", HTTP_REFERER=f"http://{HOST}/leases")

    assert answer.status_code == 401
    assert answer["HX-Redirect"] == "/accounts/login/?next=%2Fleases"


def test_a_form_leads_back_to_the_page_that_it_is_on(client: Client) -> None:
    """Its own address shows nothing: to come back there would be a 405."""
    lease = f"/leases/{uuid4()}"

    answer = client.post(f"{lease}/end", HTTP_REFERER=f"http://{HOST}{lease}")
    bare = client.post(f"{lease}/end")

    assert answer.status_code == bare.status_code == 302
    assert answer["Location"].endswith(f"?next=%2Fleases%2F{lease.removeprefix('/leases/')}")
    assert bare["Location"] == "/accounts/login/?next=%2F"


def stale(client: Client) -> Client:
    """Let the browser of `client` keep cookies, but hold a form from before the last log-in."""
    client.cookies["csrftoken"] = "a" * 32
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    return strict


OLD = {"csrfmiddlewaretoken": "b" * 32}
HERE: dict[str, Any] = {"HTTP_ORIGIN": f"http://{HOST}", "HTTP_REFERER": f"http://{HOST}/bids/new"}


def test_an_old_form_is_kept_and_sent_again_by_a_click(world: World) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/bids/new", {**OLD, "gpus": "<2>", "limit": "1.50", "token": "7"}, **HERE)

    text = answer.content.decode()
    assert answer.status_code == 403
    assert is_page(answer)
    assert "DEBUG" not in text
    assert 'name="gpus" value="&lt;2&gt;"' in text and 'name="limit" value="1.50"' in text
    assert 'action="/bids/new"' in text and "Send it again" in text
    assert "signed in as" in text
    assert "b" * 32 not in text


@pytest.mark.parametrize("name", ["oldpassword", "token_id", "client_secret", "recovery_code"])
def test_a_field_with_a_secret_is_not_written_into_a_page(world: World, name: str) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/bids/new", {**OLD, name: "hunter2", "token": "7"}, **HERE)

    assert b"hunter2" not in answer.content


def test_an_old_form_with_a_secret_is_not_written_into_a_page(world: World) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/accounts/password/change/", {**OLD, "oldpassword": "hunter2"}, **HERE)

    assert answer.status_code == 403
    assert b"hunter2" not in answer.content
    assert b"Send it again" not in answer.content
    assert b'href="/bids/new"' in answer.content


@pytest.mark.parametrize(
    "origin", [{}, {"HTTP_ORIGIN": "https://evil.example"}, {"HTTP_ORIGIN": "null"}]
)
def test_a_form_of_another_site_is_never_offered_again(
    world: World, origin: dict[str, Any]
) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/bids/new", {**OLD, "gpus": "2"}, **origin)

    assert answer.status_code == 403
    assert is_page(answer)
    assert b"Send it again" not in answer.content and b'name="gpus"' not in answer.content


def test_an_old_log_in_form_goes_where_it_wanted_once_somebody_is_in(world: World) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/accounts/login/", {**OLD, "password": "x", "next": "/leases"}, **HERE)
    abroad = client.post("/accounts/login/", {**OLD, "next": "//evil.example"}, **HERE)

    assert (answer.status_code, answer["Location"]) == (302, "/leases")
    assert (abroad.status_code, abroad["Location"]) == (302, "/")


def test_an_old_part_gets_a_line_of_text(world: World) -> None:
    client = stale(world.member(CONSUMER, "consumer"))

    answer = client.post("/bids/estimate", {"gpus": "2"}, **PART, **HERE)

    assert answer.status_code == 403
    assert answer.content.startswith(b"<p data-refusal>")
