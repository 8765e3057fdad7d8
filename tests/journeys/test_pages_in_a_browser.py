"""The market in a browser: an owner lists, a consumer sees a lease come up, finance exports."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.journeys.conftest import STORES
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation
from tests.journeys.signing_in import THING, id_in, signed_in
from tests.journeys.work import Work
from tests.pages.browser import overflow, paint, violations

REGION = "browser"
LOOKS = [
    (("dark", 390),),
    pytest.param((("light", 1280), ("light", 390), ("dark", 1280)), marks=pytest.mark.soak),
]
"""Dark and narrow here; `tests/pages` holds the same pages to the rules where they are wide."""

pytestmark = pytest.mark.parametrize("market", STORES[:1], indirect=True, scope="package")


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Ada's host with three GPUs, its agent at work."""
    machine = register(market, "ada", REGION, tmp_path)
    machine.start_agent("--simulate", "L40S:3")
    machine.gpus()
    yield machine
    machine.retire()


def test_an_owner_lists_one_night_by_dragging_and_another_by_keys(
    market: Installation, machine: Machine, tmp_path: Path
) -> None:
    gpus = machine.gpus()
    with signed_in(market, "Ada Owner") as (page, complaints):
        page.goto(f"{market.url}/offers/new?host={machine.host_id}")
        _free(page, gpus[0]).nth(4).hover()
        page.mouse.down()
        _free(page, gpus[1]).nth(9).hover()
        page.mouse.up()
        dragged = _offer_listed_with(page, floor="2.25")

        page.goto(f"{market.url}/offers/new?host={machine.host_id}")
        _free(page, gpus[2]).first.focus()
        for key in ("ArrowRight", *["Shift+ArrowRight"] * 3, "Enter"):
            page.keyboard.press(key)
        page.keyboard.type("2.50")
        page.keyboard.press("Enter")
        page.wait_for_url(THING)
        typed = id_in(page)
        assert complaints == []

    with market.client("ada") as api:
        first, second = api.get(f"offers/{dragged}"), api.get(f"offers/{typed}")
    assert ([gpu["uuid"] for gpu in first["gpus"]], first["floor"]) == (gpus[:2], "2.25")
    assert ([gpu["uuid"] for gpu in second["gpus"]], second["floor"]) == ([gpus[2]], "2.50")
    assert len(first["windows"]) == len(second["windows"]) == 1


def test_a_consumer_bids_on_the_page_and_sees_the_lease_come_up_by_itself(
    market: Installation, machine: Machine, tmp_path: Path
) -> None:
    with signed_in(market, "Grace Consumer") as (page, complaints):
        page.goto(f"{market.url}/bids/new")
        page.fill("[name=hours]", "1")
        page.fill("[name=limit]", "2.00")
        page.get_by_text("More options").click()
        page.fill("[name=query]", f"region={REGION}")
        page.get_by_text("It would wait").wait_for()
        page.get_by_role("button", name="Place bid").click()
        page.wait_for_url(THING)
        page.evaluate("window.notReloaded = true")

        machine.list_for(2, floor="1.10", gpus=machine.gpus()[:1])

        link = page.get_by_role("link", name="See how it runs")
        link.wait_for()
        assert page.evaluate("window.notReloaded") is True
        bid_id = id_in(page)
        link.click()
        page.wait_for_url(re.compile("/leases/"))
        market.lease_of("grace", bid_id, state="active")
        page.get_by_text("Active", exact=True).first.wait_for()
        assert complaints == []


def test_finance_downloads_the_export(market: Installation, tmp_path: Path) -> None:
    with signed_in(market, "Joan Finance") as (page, complaints):
        page.goto(f"{market.url}/finance")
        with page.expect_download() as downloading:
            page.get_by_role("link", name=re.compile("FOCUS")).first.click()
        path = tmp_path / downloading.value.suggested_filename
        downloading.value.save_as(path)
        assert complaints == []

    with path.open(newline="") as file:
        columns = next(csv.reader(file))
    assert path.suffix == ".csv"
    assert {"BilledCost", "EffectiveCost", "ChargePeriodStart", "ResourceId"} <= set(columns)


@pytest.mark.parametrize("looks", LOOKS)
def test_every_page_of_a_busy_market_is_accessible_and_keeps_its_policy(
    market: Installation, machine: Machine, tmp_path: Path, looks: Sequence[tuple[str, int]]
) -> None:
    offer_id = machine.list_for(2, floor="1.00", gpus=machine.gpus()[:2])
    work = Work(tmp_path / "work")
    bid_id = market.bid("grace", f"region={REGION} gpu=L40S", work.command)
    lease = market.lease_of("grace", bid_id, state="active")
    waiting = market.bid("grace", f"region={REGION} memory>=900GiB", [])
    leases = ["/leases", f"/leases/{lease['id']}"]
    visits = {
        "Ada Owner": ["/", "/owner", "/offers", f"/offers/{offer_id}", "/offers/new", *leases],
        "Grace Consumer": ["/bids", "/bids/new", f"/bids/{waiting}", "/finance", "/settings"],
        "Olivia Operator": ["/ops", "/ops/burst", "/docs/"],
    }
    wrong = [
        f"{person} {told}"
        for person, paths in visits.items()
        for told in _faults(market, person, paths, looks)
    ]
    assert wrong == []


def _faults(
    market: Installation, person: str, paths: Sequence[str], looks: Sequence[tuple[str, int]]
) -> list[str]:
    found: list[str] = []
    with signed_in(market, person) as (page, complaints):
        for path in paths:
            page.goto(market.url + path)
            page.wait_for_load_state("load")
            for scheme, width in looks:
                paint(page, scheme)
                page.set_viewport_size({"width": width, "height": 900})
                place = f"{path} {scheme} {width}"
                found += [f"{place}: {each}" for each in violations(page)]
                if (wide := overflow(page)) > 0:
                    found.append(f"{place}: {wide} px too wide")
            found += [f"{path}: {each}" for each in complaints]
            complaints.clear()
    return found


def _free(page: Page, gpu: str) -> Locator:
    return page.locator(f'tr[data-gpu="{gpu}"] td.free')


def _offer_listed_with(page: Page, *, floor: str) -> str:
    page.fill("[name=floor]", floor)
    page.get_by_role("button", name="List GPUs").click()
    page.wait_for_url(THING)
    return id_in(page)
