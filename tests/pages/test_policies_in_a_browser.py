"""The forms of policies in a real browser: accessible, narrow enough, and used from try to set."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings

from ledger.eventstore.port import load
from marketplace.domain.quotas.policies_in_force import Policies
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.governing import govern
from tests.pages.policies import POLICIES, moment, put
from tests.pages.world import CONSUMER, PLATFORM, World

KINDS = (
    "quota",
    "override",
    "unit",
    "cohort",
    "limit",
    "weight",
    "half-life",
    "period",
    "least-run",
    "counting",
    "use",
)


def made(world: World) -> World:
    """Return a market with quotas, an override, a permit and an open request."""
    world.found()
    world.list_gpus(0, 1, 2)
    govern(world)
    olivia, unit = world.member(PLATFORM, "operator"), str(world.unit_id)
    span = {"starts_at": moment(-1), "ends_at": moment(30)}
    put(olivia, "override", node=unit, gpu_class="H100", nominal="2", **span)
    put(olivia, "use", who="research", allowed="no", what="borrow", gpu_class="A100")
    asked = {"token": uuid4(), "subscriber_id": unit, "gpu_class": "H100", "nominal": "3"}
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/fairness/requests/new", {**asked, **span, "why": "the paper is due"})
    world.settle()
    return world


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_the_forms_are_accessible_and_fit(
    committed_store: None, tmp_path: Path, scheme: str
) -> None:
    world = made(World())
    everybody = [POLICIES, "/fairness/requests/new"]
    paths = {
        (PLATFORM, "operator"): [
            *everybody,
            *(f"{POLICIES}/{kind}" for kind in (*KINDS, "listing")),
            f"/fairness/try?kind=weight&node={world.unit_id}&weight=2",
        ],
        (CONSUMER, "operator"): [
            POLICIES,
            f"{POLICIES}/limit",
            f"{POLICIES}/weight",
            "/fairness/try",
        ],
        (CONSUMER, "consumer"): everybody,
    }
    wrong = []
    with served(tmp_path / "site.log") as site:
        for (slug, role), seen in paths.items():
            client = world.member(slug, role)
            with browsing(scheme=scheme) as (context, page, said):
                enter(context, site, client.cookies)
                for path in seen:
                    page.goto(site + path)
                    for summary in page.locator("td summary, .requests summary").all():
                        summary.click()
                    wrong += [f"{path} {each}" for each in faults(page, scheme)]
                    wrong += said

    assert wrong == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
def test_a_policy_is_filled_in_tried_and_made_so(committed_store: None, tmp_path: Path) -> None:
    world = made(World())
    client = world.member(PLATFORM, "operator")
    with (
        served(tmp_path / "site.log") as site,
        browsing() as (context, page, said),
    ):
        enter(context, site, client.cookies)
        page.goto(f"{site}{POLICIES}/quota?node={world.unit_id}&gpu_class=H100")
        assert page.get_by_label("Nominal quota").input_value() == "1"
        assert page.get_by_label("Lending limit").input_value() == "", "it is not set"
        page.get_by_label("Nominal quota").fill("0")
        page.get_by_label("Borrowing limit").fill("")
        page.get_by_role("button", name="Try it first").click()
        assert page.get_by_role("heading", name="On the book as it is").is_visible()
        page.get_by_label("Reason").fill("the machines are gone")
        page.get_by_role("button", name="Apply it").click()
        page.wait_for_url(f"{site}{POLICIES}?**")
        told = page.locator(".messages").inner_text()
        wrong = list(said)

    assert "nominal 0, borrowing not set" in told
    found = load(world.store, Policies, settings.ENV.market)
    assert found is not None
    quota = found.quotas[str(world.unit_id), "H100"]
    assert (quota.nominal, quota.borrowing, quota.why) == (0, None, "the machines are gone")
    assert wrong == []
