"""Quotas and fair shares on their page: bars with figures, the order, limits, and who sees what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from django.utils import timezone

from listings.commands import allow_listing
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingNotAllowed, PermitsNotYours
from marketplace.commands.quotas import set_policy
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    CountingSet,
    ShareWeightSet,
    UnitPlaced,
)
from marketplace.domain.governance.authority import Setter
from marketplace.models.bids import BidRow
from marketplace.models.rounds import RoundRow
from tests.pages.bid_form import form as bid_form
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.governing import BY, OTHER, govern, shown
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World


@pytest.fixture
def governed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a market with quotas, looked at a little later: what was leased now has begun."""
    monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + timedelta(seconds=3))
    world.list_gpus(0, 1, 2)
    govern(world)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(gpus="1", limit="3.00"))
    consumer.post("/bids/new", bid_form(gpus="2", limit="3.00", token=str(uuid4())))
    world.settle()
    return world


@pytest.mark.django_db
def test_without_policies_the_page_says_what_to_do(world: World) -> None:
    page = shown(world.member(CONSUMER, "consumer"))

    assert "No quotas are set" in page
    assert "How quotas work" in page


@pytest.mark.django_db
def test_a_queue_is_shown_with_its_figures_and_the_arithmetic(governed: World) -> None:
    page = shown(governed.member(CONSUMER, "consumer"))

    assert "Language models" in page
    assert "1 of 1 GPUs used" in page, "its own one; the two of another unit are not lent"
    assert "borrows at most 3" in page
    assert page.count("lend without limit") == 1, "what is the same for most is said once a class"
    assert "of 40 guaranteed GPU-hours used" in page
    assert "Language models 1 bid for 2 GPUs waiting" in page
    assert "÷ weight 3 =" in page
    assert "1 of 2 queues shown" in page
    assert "Person" in page and "GPUs at once" in page


@pytest.mark.django_db
def test_a_bid_that_waits_for_quota_tells_the_arithmetic(governed: World) -> None:
    consumer = governed.member(CONSUMER, "consumer")
    bid = BidRow.objects.get(gpus=2)

    page = shown(consumer, f"/bids/{bid.bid_id}")

    assert "H100: 1 of 1 GPUs used, 2 more asked: 2 &gt; 0 that can be had (cohort)." in page


@pytest.mark.django_db
def test_the_page_says_where_parts_are_counted(governed: World) -> None:
    consumer = governed.member(CONSUMER, "consumer")
    assert "counts as the part that it is" not in shown(consumer)
    set_policy(
        governed.store,
        policy=CountingSet(market=settings.ENV.market, counts="parts", at=datetime.now(UTC)),
        setter=Setter(governed.tenant(PLATFORM), True),
        by=BY,
    )
    governed.settle()

    assert "counts as the part that it is" in shown(consumer)
    assert "A part of a card counts as the part of it that it is" in shown(consumer)


@pytest.mark.django_db
def test_the_log_says_who_when_what_and_why(governed: World) -> None:
    page = shown(governed.member(CONSUMER, "consumer"))

    assert (
        "Quota of Language models for H100: nominal 1, borrowing 3, lending not set, "
        "guaranteed GPU-hours 40" in page
    )
    assert "their own machines" in page
    assert "user:olivia" in page
    assert "Half-life of use: 1 d" in page


@pytest.mark.django_db
def test_nobody_sees_the_figures_of_another_organisation(governed: World) -> None:
    page = shown(governed.member(CONSUMER, "operator"))
    all_of_it = shown(governed.member(PLATFORM, "operator"))

    assert str(OTHER) not in page
    assert "nominal 3" not in page
    assert str(OTHER) in all_of_it and "nominal 3" in all_of_it


@pytest.mark.django_db
def test_who_is_bound_to_one_unit_sees_that_one(governed: World) -> None:
    """The consumer's member belongs to the unit; a colleague of another unit does not see it."""
    colleague = governed.member(CONSUMER, "consumer")
    owner = governed.member(OWNER, "consumer")

    assert "Language models" in shown(colleague)
    assert "None of your units" in shown(owner) or "0 of 2 queues shown" in shown(owner)


@pytest.mark.django_db
def test_a_policy_is_tried_before_it_binds(governed: World) -> None:
    """With its quota at 0 and nothing to borrow, the waiting bid and the lease fare otherwise."""
    operator = governed.member(PLATFORM, "operator")
    asked = f"/fairness/try?node={governed.unit_id}&gpu_class=H100&nominal=0&hours=1&wait=1"

    page = shown(operator, asked)

    assert "On the book as it is 1 open bid" in page
    assert "within nominal quota" in page
    assert "On the past" in page and "Interruptions" in page
    assert "nominal 1" in shown(operator), "nothing was set"


@pytest.mark.django_db
def test_what_is_tried_can_be_tried_again(governed: World) -> None:
    operator = governed.member(PLATFORM, "operator")
    asked = f"/fairness/try?node={governed.unit_id}&gpu_class=H100&nominal=0"

    fresh = html(operator.get("/fairness/try").content)
    tried = html(operator.get(asked).content)

    assert "<button>Try it</button></div></form></section>" in fresh
    again = tried.index('<button class="plain">Try it again</button></div></form></section>')
    assert again < tried.index("On the book as it is") < tried.index("The queues")
    assert tried.index("The queues") < tried.index("Apply it")


@pytest.mark.django_db
def test_who_may_not_list_is_refused(world: World) -> None:
    forbidden = ListingAllowed(
        market=settings.ENV.market,
        tenant_id=None,
        gpu_class="H100",
        allowed=False,
        at=datetime.now(UTC),
    )
    with pytest.raises(PermitsNotYours):
        allow_listing(world.store, permitted=forbidden, by_platform=False, by=BY)
    allow_listing(world.store, permitted=forbidden, by_platform=True, by=BY)

    with pytest.raises(ListingNotAllowed):
        world.list_gpus(0)


@pytest.mark.django_db
def test_who_may_set_a_policy_may_try_it(governed: World) -> None:
    of_tenant = governed.member(CONSUMER, "operator")

    assert governed.member(CONSUMER, "consumer").get("/fairness/try").status_code == 403
    assert of_tenant.get("/fairness/try").status_code == 200
    assert of_tenant.get("/fairness/try?kind=half-life").status_code == 403
    weights = shown(of_tenant, "/fairness/try?kind=weight")
    assert "None of your units is in your own grant" in weights
    assert of_tenant.get("/fairness/try?kind=listing").status_code == 403
    auditor = shown(
        governed.member(PLATFORM, "auditor"),
        f"/fairness/try?node={governed.unit_id}&gpu_class=H100&nominal=0",
    )
    assert "On the book as it is" in auditor and "Apply it" not in auditor
    empty = governed.member(PLATFORM, "operator").get(f"/fairness/try?node={governed.unit_id}")
    assert empty.status_code == 422
    assert b"This field is required" in empty.content


@pytest.mark.django_db
def test_shares_are_shown_as_they_were_in_a_round(governed: World) -> None:
    row = RoundRow.objects.filter(grants=1).first()
    assert row is not None

    page = shown(governed.member(CONSUMER, "consumer"), f"/fairness?round={row.round_id}")

    assert "as it was when a round was decided" in page
    assert "no use" in page or "0.00 ÷" in page
    missing = governed.member(CONSUMER, "consumer").get(f"/fairness?round={uuid4()}")
    assert missing.status_code == 422


def divide(world: World) -> None:
    """Put the two units into cohorts of their own, within the one that they were in."""
    market, at = settings.ENV.market, datetime.now(UTC)
    setter = Setter(world.tenant(PLATFORM), True)
    units = {
        "students": (world.unit_id, world.tenant(CONSUMER)),
        "staff": (OTHER, world.tenant(OWNER)),
    }
    for cohort, (unit, tenant) in units.items():
        for policy in (
            CohortPlaced(market=market, cohort=cohort, parent="research", tenant_id=None, at=at),
            UnitPlaced(market=market, subscriber_id=unit, tenant_id=tenant, cohort=cohort, at=at),
        ):
            set_policy(world.store, policy=policy, setter=setter, by=BY)
    heavy = ShareWeightSet(market=market, node="students", weight_ppm=2_000_000, at=at)
    set_policy(world.store, policy=heavy, setter=setter, by=BY)
    world.settle()


@pytest.mark.django_db
def test_cohorts_are_shown_with_the_units_in_them(governed: World) -> None:
    divide(governed)

    page = shown(governed.member(PLATFORM, "operator"))

    cohorts = ("research cohort of 2", "staff cohort of 1 queue, turn 1 of 2")
    order = [page.index(each) for each in cohorts]
    assert order == sorted(order)
    assert "students cohort of 1 queue, turn 2 of 2" in page
    assert page.count("before the next: in research: staff 0 &lt; students") == 1
    assert "students has weight 2" in page


@pytest.mark.django_db
def test_what_policies_would_do_to_cohorts_is_tried(governed: World) -> None:
    divide(governed)

    tried = "/fairness/try?kind=weight&node=staff&weight=0"
    page = shown(governed.member(PLATFORM, "operator"), tried)

    assert "Cohort Turn now Then" in page
    assert "staff 1 2 0 –" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_the_page_is_accessible_and_fits(
    committed_store: None, tmp_path: Path, scheme: str
) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1, 2)
    govern(world)
    divide(world)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    wrong = []
    with served(tmp_path / "site.log") as site:
        for slug, role in ((CONSUMER, "consumer"), (PLATFORM, "operator")):
            client = world.member(slug, role)
            with browsing(scheme=scheme) as (context, page, complaints):
                enter(context, site, client.cookies)
                paths = ["/fairness"]
                if slug == PLATFORM:
                    paths.append(f"/fairness/try?node={world.unit_id}&gpu_class=H100&nominal=3")
                for path in paths:
                    page.goto(site + path)
                    page.wait_for_load_state("networkidle")
                    wrong += [f"{path} {each}" for each in faults(page, scheme)]
                    wrong += complaints

    assert wrong == []
