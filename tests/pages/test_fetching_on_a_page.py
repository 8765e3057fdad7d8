"""*Run something* with what its host fetches: refused at its field, or placed and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.models.bids import BidRow
from tests.pages.browser import browsing, enter, faults, served
from tests.pages.governing import govern
from tests.pages.world import CONSUMER, World

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]

ADDRESS = "git+https://git.example/lab/train@main#src"


def test_a_repository_is_named_and_the_bids_page_tells_it(
    committed_store: None, tmp_path: Path
) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1, floor="2.00")
    govern(world)
    wrong: list[str] = []
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, said),
    ):
        enter(context, site, world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/run")
        page.get_by_label("Command").fill("python3 train.py")
        page.get_by_label("Limit price").fill("2.50")
        page.get_by_label("Fetched by the host").fill("git+https://token@git.example/lab/train")
        page.get_by_role("button", name="Run it").click()
        page.get_by_text("everybody who sees the bid would see the token").first.wait_for()
        wrong += faults(page, "light")
        wrong += [each for each in said if "422" not in each]
        page.get_by_label("Fetched by the host").fill(ADDRESS)
        page.get_by_role("button", name="Run it").click()
        page.get_by_text("Your bid is on the market.").wait_for()
        world.settle()
        page.reload()
        page.get_by_text("Its host fetches:").wait_for()
        page.get_by_text(ADDRESS).wait_for()
        wrong += faults(page, "light")

    (row,) = BidRow.objects.all()
    assert (row.fetch, row.inputs) == (ADDRESS, None)
    assert wrong == []
