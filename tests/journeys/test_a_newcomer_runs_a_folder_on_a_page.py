"""A newcomer's ten minutes in a browser: a folder is sent, watched, entered, and its file saved."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from ledger.domain.money import nanos_of
from tests.journeys import books
from tests.journeys.conftest import STORES
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Answered, Installation
from tests.journeys.signing_in import id_in, signed_in
from tests.metering.agent.works import ROOT
from tests.pages.browser import faults

REGION = "beginners"
WEIGHTS = bytes(range(256)) * 4_000
TRAIN = """
import pathlib, time

print("step 1: weight 1.0", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print("step 2: weight 1.5", flush=True)
pathlib.Path("out").mkdir()
pathlib.Path("out/model.bin").write_bytes(pathlib.Path("data/points.bin").read_bytes())
"""
"""It waits half-way, until somebody who has come into it lets it go on."""

pytestmark = [
    ROOT,
    pytest.mark.parametrize("market", STORES[:1], indirect=True, scope="package"),
]


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Ada's host with one GPU, listed, its agent at work."""
    machine = register(market, "ada", REGION, tmp_path)
    machine.start_agent("--simulate", "L4:1", "--access", "shell")
    machine.list_for(2, floor="0.50", gpus=machine.gpus())
    yield machine
    machine.retire()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small training program and its data."""
    folder = tmp_path / "train"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "points.bin").write_bytes(WEIGHTS)
    (folder / "train.py").write_text(TRAIN)
    return folder


def ssh(market: Installation, lease_id: str, *command: str) -> Answered:
    """Run a command in a running lease, as Grace at her terminal."""
    known = {"OFFPEAK_SERVER": market.url, "OFFPEAK_TOKEN": market.tokens["grace"]}
    words = [sys.executable, "-m", "marketplace.sdk", "ssh", lease_id, "--", *command]
    return market.run(words, known)


def test_a_folder_runs_on_a_strangers_host_and_what_it_made_is_saved_by_the_browser(
    market: Installation, machine: Machine, folder: Path, tmp_path: Path
) -> None:
    with signed_in(market, "Grace Consumer") as (page, complaints):
        page.goto(f"{market.url}/run")
        page.set_input_files("#folder", folder)
        page.get_by_text(re.compile(r"train: 2 files, .* sent\.")).wait_for()
        page.get_by_label("Command").fill("python3 train.py")
        page.get_by_label("Files it leaves").fill("out/")
        page.fill("[name=hours]", "1")
        page.get_by_label("Limit price").fill("2")
        page.get_by_text("More options").click()
        page.get_by_label("More conditions").fill(f"region={REGION}")
        page.get_by_role("button", name="Run it").click()
        page.wait_for_url(re.compile("/bids/[0-9a-f]"))
        market.lease_of("grace", id_in(page), state="active")
        page.get_by_role("link", name="See how it runs").click()
        page.wait_for_url(re.compile("/leases/"))
        lease_id = id_in(page)

        log = page.get_by_role("log")
        log.get_by_text("step 1: weight 1.0").wait_for()
        assert not log.get_by_text("step 2").count()
        page.get_by_role("heading", name="Connect").wait_for()
        page.get_by_role("img", name=re.compile("GPU-hours granted")).wait_for()
        assert f"offpeak ssh {lease_id}" in page.locator("#connect-shell").inner_text()
        running = faults(page, "light")
        page.evaluate("window.notReloaded = true")

        entered = ssh(market, lease_id, "sh", "-c", "ls; touch go")

        assert (entered.code, "train.py" in entered.out.split()) == (0, True), entered.err
        log.get_by_text("step 2: weight 1.5").wait_for()
        files = page.get_by_role("region", name="Files")
        files.get_by_role("link", name="out/model.bin").wait_for()
        page.get_by_text("Closed", exact=True).first.wait_for()
        assert page.evaluate("window.notReloaded") is True
        saved = _saved(page, "out/model.bin", tmp_path)
        over = faults(page, "light")

        use = books.final_use(market, "grace", lease_id)
        charged = _charged(page, market, lease_id)
        assert complaints == []

    assert saved == WEIGHTS
    assert (running, over) == ([], [])
    with market.client("grace") as api:
        lease = api.get(f"leases/{lease_id}")
    assert machine.host_id in lease["host_ids"]
    assert charged == books.charge_of(lease, use["granted_ms"]).nanos > 0
    assert charged == nanos_of(use["charged"])


def _saved(page: Page, path: str, folder: Path) -> bytes:
    """Return the file that the browser saves when one of the links of a page is followed."""
    with page.expect_download() as downloading:
        page.get_by_role("link", name=path).click()
    downloading.value.save_as(folder / "saved")
    return (folder / "saved").read_bytes()


def _charged(page: Page, market: Installation, lease_id: str) -> int:
    """Return what the statement's lines say a lease was charged, in nano-units."""
    page.goto(f"{market.url}/finance")
    page.get_by_role("row").filter(has_text="prepaid").get_by_role("link").first.click()
    lines = page.locator("tr", has=page.locator(f'a[href="/leases/{lease_id}"]'))
    told = lines.locator("[data-label=Amount]").all_inner_texts()
    return sum(nanos_of(re.sub(r"[^\d.]", "", each)) for each in told)
