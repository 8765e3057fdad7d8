"""The lab on its page in a real browser: run over the socket, given up, and not for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pages.bid_form import form as bid_form
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.governing import govern
from tests.pages.world import CONSUMER, PLATFORM, World

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]

ASKED = "/lab?hours=24&price=limit&lanes=as-bid&round_seconds=60&fee=5"
PATIENCE_MS = 60_000
SOCKET = """(asked) => new Promise((resolve) => {
  const socket = new WebSocket(`ws://${location.host}/ws/lab`);
  socket.onopen = () => socket.send(JSON.stringify(asked));
  socket.onmessage = ({data}) => {
    const told = JSON.parse(data);
    if (told.html) resolve(told.html);
  };
  socket.onclose = () => resolve("closed");
})"""

ODD = (
    "", "7", "null", "[]", "{", '{"path": [], "query": ""}', '{"path": {}, "query": ""}',
    '{"path": "/lab", "query": ["x"]}', '{"path": "/elsewhere", "query": ""}', "[" * 100_000,
)  # fmt: skip
"""What no page of ours sends."""
ONE, MANY = "socket.send(JSON.stringify(asked))", "asked.forEach((each) => socket.send(each))"

GIVEN_UP_AT_ONCE = """() => new Promise((resolve) => {
  const run = document.querySelector("lab-run");
  const again = [...run.querySelectorAll("button")].at(-1);
  again.click();
  const { socket } = run;
  again.click();
  socket.addEventListener("close", () =>
    resolve([run.querySelector("[data-said]").textContent, "closed"]));
})"""


def traded() -> World:
    world = World()
    world.found()
    world.list_gpus(0, 1, floor="2.00")
    govern(world)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    return world


@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_a_run_is_told_of_and_its_outcome_takes_its_place(
    committed_store: None, tmp_path: Path, scheme: str
) -> None:
    world = traded()
    tried = f"/fairness/try?kind=weight&node={world.unit_id}&weight=2&hours=24"
    wrong: list[str] = []
    with (
        served(tmp_path / "site.log") as site,
        browsing(scheme=scheme) as (context, page, said),
    ):
        enter(context, site, world.member(PLATFORM, "operator").cookies)
        for path, heading in ((ASKED, "What comes of it"), (tried, "On the past")):
            page.goto(site + path)
            page.locator("#h-found").wait_for(timeout=PATIENCE_MS)
            assert page.locator("#h-found").inner_text() == heading
            assert page.get_by_text("Who bids: who wins, who loses").is_visible()
            wrong += [f"{path} {each}" for each in faults(page, scheme)]
        wrong += said

    assert wrong == []


def test_a_run_is_given_up_and_begun_again(committed_store: None, tmp_path: Path) -> None:
    world = traded()
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, said),
    ):
        enter(context, site, world.member(PLATFORM, "operator").cookies)
        page.goto(site + ASKED)
        page.get_by_role("button", name="Give up").click()
        assert page.get_by_text("Given up.").is_visible()
        page.get_by_role("button", name="Run it again").last.click()
        page.locator("#h-found").wait_for(timeout=PATIENCE_MS)
        wrong = list(said)

    assert wrong == []


def test_a_run_may_be_given_up_before_it_is_connected(
    committed_store: None, tmp_path: Path
) -> None:
    world = traded()
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, said),
    ):
        enter(context, site, world.member(PLATFORM, "operator").cookies)
        page.goto(site + ASKED)
        page.get_by_role("button", name="Give up").click()
        given_up = page.evaluate(GIVEN_UP_AT_ONCE)
        page.get_by_role("button", name="Run it again").last.click()
        page.locator("#h-found").wait_for(timeout=PATIENCE_MS)
        wrong = list(said)

    assert given_up == ["Given up.", "closed"]
    assert wrong == []


def test_the_socket_is_for_who_governs_the_platform(committed_store: None, tmp_path: Path) -> None:
    world = traded()
    asked = {"path": "/lab", "query": ASKED.partition("?")[2]}
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, _),
    ):
        page.goto(f"{site}/accounts/login/")
        nobody = page.evaluate(SOCKET, asked)
        enter(context, site, world.member(CONSUMER, "operator").cookies)
        page.goto(f"{site}/bids")
        told = page.evaluate(SOCKET, asked)
        elsewhere = page.evaluate(SOCKET, {**asked, "query": "hours=999"})
        after = page.evaluate(SOCKET.replace(ONE, MANY), [*ODD, json.dumps(asked)])

    assert nobody == "closed"
    assert "What comes of it" not in told and "Only an operator of the platform" in told
    assert "What comes of it" not in elsewhere
    assert after == told, "what no page sends is passed over"
