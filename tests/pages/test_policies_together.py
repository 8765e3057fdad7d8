"""Several policies tried together and set at once, and permissions tried on the last days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client

from ledger.domain.ids import OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.port import load
from listings.commands import publish_offer
from listings.domain.events import Division
from listings.domain.permits import ListingPermits
from listings.domain.terms import OfferTerms
from tests.pages.bid_form import form as bid_form
from tests.pages.policies import POLICIES, dean, olivia, policies
from tests.pages.reading import text
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db

TRY = "/fairness/try"
__all__ = ["dean", "olivia"]


@pytest.fixture
def world(db: None) -> World:
    """Return a market founded an hour ago, so that the lab finds offers that stood for a while."""
    made = World(now=datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1))
    made.found()
    return made


def said(kind: str, **fields: Any) -> str:
    """Return a policy as an address says it."""
    return urlencode({"kind": kind, **fields})


def tried(*policies: str, **more: Any) -> str:
    """Return the address of a trial of policies."""
    pairs = [("with", each) for each in policies]
    return f"{TRY}?{urlencode([('kind', 'quota'), *more.items(), *pairs])}"


def of(world: World) -> tuple[str, str]:
    """Return two policies: no quota of its own for the unit, and a higher weight."""
    unit = str(world.unit_id)
    return said("quota", node=unit, gpu_class="H100", nominal=0), said(
        "weight", node=unit, weight=4
    )


def json(client: Client, path: str, body: Any) -> Any:
    return client.post(f"/api/v1/{path}", body, content_type="application/json")


def test_several_policies_are_tried_together(world: World, olivia: Client) -> None:
    page = text(olivia.get(tried(*of(world), hours=1, wait=1)).content)

    assert "Tried together 2 policies, set one after the other" in page
    assert "nominal 0" in page and "weight 4" in page
    assert "On the book as it is" in page
    assert "On the past" in page and "Welfare" in page and "Spent on bursting" in page
    assert policies(world).quotas[str(world.unit_id), "H100"].nominal == 1, "nothing is set"
    assert policies(world).weights[str(world.unit_id)] == 3_000_000


def test_what_is_in_the_form_is_tried_with_the_rest(world: World, olivia: Client) -> None:
    quota, _ = of(world)
    more = {"kind": "weight", "node": str(world.unit_id), "weight": "3", "with": quota}

    page = olivia.get(f"{TRY}?{urlencode(more)}").content.decode()

    assert "Tried together" in page and "in the form below" in page
    assert f'name="with" value="{quota.replace("&", "&amp;")}"' in page
    other = page.split('aria-label="Kind of policy to add"')[1].split("</nav>")[0]
    assert other.count("with=kind%3Dweight") == other.count("with=kind%3Dquota") >= 9


def test_policies_that_were_tried_are_set_at_once(world: World, olivia: Client) -> None:
    unit = str(world.unit_id)
    sent = {"token": uuid4(), "market": settings.ENV.market, "why": "a new term"}
    sent |= {"with": [*of(world), said("listing", gpu_class="A100", allowed="no")]}

    answer = olivia.post(f"{POLICIES}/together", sent)

    assert answer.status_code == 302 and answer["Location"].startswith(POLICIES)
    now = policies(world)
    assert now.quotas[unit, "H100"].nominal == 0
    assert now.quotas[unit, "H100"].why == "a new term"
    assert now.weights[unit] == 4_000_000
    permits = load(world.store, ListingPermits, settings.ENV.market)
    assert permits is not None and permits.allowed == {(None, "A100"): False}


def test_if_one_is_refused_none_is_set(world: World, olivia: Client) -> None:
    quota, weight = of(world)
    nowhere = said("cohort", cohort="Physics!")
    sent = {"token": uuid4(), "market": settings.ENV.market, "why": "because"}

    answer = olivia.post(f"{POLICIES}/together", {**sent, "with": [quota, nowhere, weight]})
    shown = olivia.get(answer["Location"])

    assert answer["Location"].startswith(TRY) and shown.status_code == 422
    assert "A cohort is named by" in text(shown.content)
    assert policies(world).quotas[str(world.unit_id), "H100"].nominal == 1
    body = {
        "policies": [
            {"kind": "weight", "node": str(world.unit_id), "weight_ppm": 4_000_000},
            {"kind": "cohort", "cohort": "Physics!"},
        ]
    }
    assert json(olivia, "quotas/policies", body).status_code == 422
    assert policies(world).weights[str(world.unit_id)] == 3_000_000


def test_the_api_sets_several_at_once(world: World, olivia: Client) -> None:
    unit = str(world.unit_id)
    body = {
        "why": "a new term",
        "policies": [
            {"kind": "weight", "node": unit, "weight_ppm": 4_000_000, "why": "its own reason"},
            {"kind": "use", "who": unit, "gpu_class": "H100", "what": "borrow", "allowed": False},
            {"kind": "listing", "gpu_class": "A100", "allowed": False},
            {"kind": "listing", "gpu_class": "V100", "allowed": False},
        ],
    }

    answer = json(olivia, "quotas/policies", body)

    assert answer.status_code == 201, answer.content
    assert policies(world).weights[unit] == 4_000_000
    assert policies(world).permits == {(unit, "borrow", "H100"): False}
    permits = load(world.store, ListingPermits, settings.ENV.market)
    assert permits is not None and len(permits.allowed) == 2


def test_a_permission_is_tried_on_the_last_days(world: World, olivia: Client) -> None:
    """The unit owns and leases 1 H100: with none, and no borrowing, it would have had to ask."""
    unit = str(world.unit_id)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    listing = {"kind": "listing", "gpu_class": "H100", "allowed": False}
    use = {"kind": "use", "who": unit, "gpu_class": "H100", "what": "lease", "allowed": False}

    def ask(*tried: dict[str, Any]) -> dict[str, list[str]]:
        answer = json(olivia, "quotas/trials", {"policies": list(tried)})
        assert answer.status_code == 200, answer.content
        changes = answer.json()["past"]["changes"]
        return {
            kind: [each["after"] for each in changes if each["kind"] == kind]
            for kind in ("offer", "bid", "lease")
        }

    assert ask(listing) == {"offer": ["refused"], "bid": [], "lease": []}
    assert ask(use) == {"offer": [], "bid": ["refused"], "lease": ["refused"]}
    none_own = {"kind": "quota", "node": unit, "gpu_class": "H100", "nominal": 0}
    assert ask({**use, "what": "borrow"}) == {"offer": [], "bid": [], "lease": []}
    borrow = ask({**use, "what": "borrow"}, none_own)
    assert borrow == {"offer": [], "bid": ["needs-approval"], "lease": ["needs-approval"]}
    assert ask(listing, {**use, "gpu_class": "A100"})["lease"] == []


def test_a_permission_tried_holds_for_parts_of_the_card(world: World, olivia: Client) -> None:
    divided = OfferTerms(
        gpu_uuids=("GPU-3",),
        windows=(Window(world.now, world.now + timedelta(hours=10)),),
        floor=Rate(1_000_000_000),
        division=Division("mps", 4),
    )
    publish_offer(
        world.store, offer_id=OfferId(uuid4()), host_id=world.host_id, terms=divided, by=BY,
        now=world.now,
    )  # fmt: skip
    world.settle()

    def refused(*said: tuple[str, bool]) -> list[list[str]]:
        listings = [{"kind": "listing", "gpu_class": of, "allowed": may} for of, may in said]
        answer = json(olivia, "quotas/trials", {"policies": listings}).json()
        return sorted(each["gpu_models"] for each in answer["past"]["changes"])

    [[card], [share]] = refused(("H100", False))
    assert (card, share) == ("H100-80GB", "H100-80GB-mps.25.20gb")
    assert refused((share, False)) == [[share]]
    assert refused(("H100", False), (share, True)) == [[card]]
    listing = {"kind": "listing", "gpu_class": share, "allowed": False}
    found = json(olivia, "lab", {"hours": 24, "policies": [listing]}).json()
    without, whole = (found[each]["offered_gpu_seconds"] for each in ("variant", "again"))
    assert 3_600 <= without // 3 == whole // 7, "three cards, and four shares of the fourth"


def test_permissions_tried_are_counted_on_the_page(world: World, olivia: Client) -> None:
    page = text(olivia.get(tried(said("listing", gpu_class="H100", allowed="no"))).content)

    assert "Everybody else may not list H100" in page
    assert "Offers that came or stand on the market 1 1 0 0 0" in page
    assert "allowed refused" in page


def test_a_tenants_operator_sees_no_last_days_of_others(
    world: World, dean: Client, olivia: Client
) -> None:
    quota = {"kind": "quota", "node": str(world.unit_id), "gpu_class": "H100", "nominal": 1}

    own = json(dean, "quotas/trials", {"policies": [quota], "days": 7})
    use = {"kind": "use", "gpu_class": "H100", "what": "lease", "allowed": False}

    assert own.status_code == 200 and own.json()["past"] is None
    assert json(dean, "quotas/trials", {"policies": [use]}).status_code == 403
    assert json(dean, "quotas/policies", {"policies": [use]}).status_code == 403
    asked = {"policies": [quota], "days": 32}
    assert json(olivia, "quotas/trials", asked).status_code == 422


def test_who_wins_and_who_loses_is_told(world: World, olivia: Client) -> None:
    """Nobody may lease H100s in the last hours: the unit and the owner lose all they had."""
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    use = {"kind": "use", "gpu_class": "H100", "what": "lease", "allowed": False}

    found = json(olivia, "lab", {"hours": 2, "policies": [use]}).json()
    page = text(
        olivia.get(
            tried(said("use", gpu_class="H100", what="lease", allowed="no"), hours=2, wait=1)
        ).content
    )

    told = {each["side"]: each for each in found["parties"]}
    assert told["consumer"]["who"] == str(world.unit_id)
    assert (told["consumer"]["fares"], told["owner"]["fares"]) == ("loses", "loses")
    assert told["owner"]["before"]["money"] != "0.00" == told["owner"]["after"]["money"]
    assert told["consumer"]["after"]["grants"] == 0
    assert "Who bids: who wins, who loses" in page and "Language models loses" in page
    assert "Who lists: who wins, who loses" in page and "Aurora loses" in page


def test_offers_of_who_may_not_list_do_not_come_in_the_lab(world: World, olivia: Client) -> None:
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    tenant = str(world.tenant(OWNER))
    listing = {"kind": "listing", "tenant_id": tenant, "gpu_class": "any", "allowed": False}

    found = json(olivia, "lab", {"hours": 24, "policies": [listing]}).json()

    assert found["again"]["grants"] >= 1 and found["variant"]["grants"] == 0
    assert found["variant"]["offered_gpu_seconds"] == 0 < found["again"]["offered_gpu_seconds"]


def test_an_auditor_tries_and_sets_nothing(world: World, olivia: Client) -> None:
    auditor = world.member(PLATFORM, "auditor")
    page = auditor.get(tried(*of(world)))

    assert page.status_code == 200 and "Apply them" not in text(page.content)
    sent = {"token": uuid4(), "why": "x", "with": list(of(world))}
    assert auditor.post(f"{POLICIES}/together", sent).status_code == 403
