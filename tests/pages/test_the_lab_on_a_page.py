"""The policy lab on its page and in the API: who may, what it says, what it refuses."""

from __future__ import annotations

import pytest

from tests.pages.bid_form import form as bid_form
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db

ASKED = "/lab?hours=24&price=limit&lanes=as-bid&round_seconds=60&fee=5&wait=1"


@pytest.fixture
def traded(world: World) -> World:
    world.list_gpus(0, 1, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    return world


@pytest.mark.parametrize("role", ["consumer", "owner", "operator", "auditor"])
def test_only_who_governs_the_platform_runs_the_lab(world: World, role: str) -> None:
    assert world.member(OWNER, role).get("/lab").status_code == 403
    assert world.member(OWNER, role).get(ASKED).status_code == 403
    assert world.member(PLATFORM, "auditor").get("/lab").status_code == 200


def test_the_outcomes_stand_side_by_side(traded: World) -> None:
    page = text(traded.member(PLATFORM, "operator").get(ASKED).content)

    assert "Grants 1 1 1 =" in page
    assert "Consumers gain limits less prices" in page
    assert "What other rules cannot change here" in page


def test_another_least_running_time_is_a_knob(traded: World) -> None:
    visitor = traded.member(PLATFORM, "operator")

    page = text(visitor.get(f"{ASKED}&least_run_minutes=90").content)
    beyond = visitor.get(f"{ASKED}&least_run_minutes=1441")
    answer = visitor.post(
        "/api/v1/lab", {"hours": 24, "least_run_seconds": 0}, content_type="application/json"
    )

    assert "Grants 1 1 1 =" in page
    assert beyond.status_code == 422 and b"less than or equal to 1440" in beyond.content
    assert answer.status_code == 200, answer.content


def test_what_was_asked_stays_in_the_form(traded: World) -> None:
    page = traded.member(PLATFORM, "operator").get(ASKED).content.decode()

    assert '<option value="limit" selected>' in page


def test_a_question_out_of_range_is_refused_in_place(traded: World) -> None:
    visitor = traded.member(PLATFORM, "operator")

    answer = visitor.get(ASKED.replace("hours=24", "hours=999"))

    assert answer.status_code == 422
    assert b"less than or equal to 168" in answer.content


def test_a_quiet_stretch_says_so(world: World) -> None:
    answer = world.member(PLATFORM, "operator").get(ASKED)

    assert answer.status_code == 422
    assert b"Nothing happened on the market in that time." in answer.content


def test_the_api_answers_the_same_question(traded: World) -> None:
    visitor = traded.member(PLATFORM, "operator")

    answer = visitor.post(
        "/api/v1/lab", {"hours": 24, "price": "limit"}, content_type="application/json"
    )

    found = answer.json()
    assert answer.status_code == 200, found
    assert found["variant"]["consumer_surplus"] == "0.00"
    assert found["recorded"]["consumer_surplus"] == found["again"]["consumer_surplus"] != "0.00"
    assert found["variant"]["grants"] == 1


def test_the_api_refuses_others_and_unknown_rules(traded: World) -> None:
    json = "application/json"
    other = traded.member(OWNER, "operator").post("/api/v1/lab", {}, content_type=json)
    wrong = traded.member(PLATFORM, "operator").post(
        "/api/v1/lab", {"price": "dice"}, content_type=json
    )

    assert other.status_code == 403
    assert wrong.status_code == 422
