"""*Run something*: a folder is sent from the browser, and a bid with few questions is placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.models.bids import BidRow
from marketplace.models.folders import FolderRow
from tests.pages.browser import browsing, enter, faults, served
from tests.pages.governing import govern
from tests.pages.world import CONSUMER, World

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]

TRAIN = "print('hello')\n"
LARGE = b"weights " * 200_000


def test_a_folder_is_sent_and_a_bid_names_it(committed_store: None, tmp_path: Path) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1, floor="2.00")
    govern(world)
    folder = tmp_path / "train"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "empty.txt").touch()
    (folder / "train.py").write_text(TRAIN)
    (folder / "weights.bin").write_bytes(LARGE)
    wrong: list[str] = []
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, said),
    ):
        enter(context, site, world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/run")
        wrong += faults(page, "light")
        told = page.locator("[data-said]")
        for sent in ("1.5 MiB sent", "0.0 KiB sent"):
            page.set_input_files("#folder", folder)
            page.get_by_text(f"train: 3 files, {sent}.").wait_for()
        world.settle()
        page.get_by_label("Command").fill("python3 train.py")
        page.get_by_label("Limit price").fill("2.50")
        (folder / ".offpeakignore").write_text("weights.bin\n")
        page.set_input_files("#folder", folder)
        page.get_by_text("which only “offpeak files up” follows").wait_for()
        assert "bring it by that" in told.inner_text()
        wrong += said
        # No loop reads events here: that the bid's own page waits for them is no fault.
        page.get_by_role("button", name="Run it").click()
        page.get_by_text("Your bid is on the market.").wait_for()

    world.settle()
    kept = FolderRow.objects.first()
    bid = BidRow.objects.get()
    assert kept is not None and kept.size_bytes == len(TRAIN) + len(LARGE)
    assert (bid.seeks, bid.command, bid.inputs) == ("soonest", ["python3", "train.py"], kept.pk)
    assert wrong == []
