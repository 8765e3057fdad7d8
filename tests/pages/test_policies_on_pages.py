"""Policies set on their pages: by whom, with which reason, refused where, and tried first."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings, settings
from django.test import Client

from ledger.eventstore.port import load
from listings.domain.markets import read_markets
from listings.domain.permits import ListingPermits
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from tests.pages.governing import shown
from tests.pages.policies import POLICIES, moment, policies, put
from tests.pages.policies import dean as dean
from tests.pages.policies import olivia as olivia
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


def test_every_kind_of_policy_is_set_on_a_page(world: World, olivia: Client) -> None:
    unit, cirrus = str(world.unit_id), world.tenant(CONSUMER)

    put(olivia, "cohort", cohort="physics", parent="research", tenant_id=cirrus)
    put(olivia, "unit", subscriber_id=unit, cohort="physics")
    put(olivia, "quota", node=unit, gpu_class="H100", nominal="7", lending="0", gpu_hours="90")
    starts, ends = moment(1), moment(3)
    put(
        olivia,
        "override",
        node="physics",
        gpu_class="H100",
        nominal="2",
        starts_at=starts,
        ends_at=ends,
    )
    put(
        olivia, "limit", whom=f"subscriber:{unit}", gpus="5", memory="1.5", money="20", period="day"
    )
    put(olivia, "weight", node=unit, weight="2.5")
    put(olivia, "half-life", length="48")
    put(olivia, "period", length="168", starts_at="2026-01-05T00:00")
    put(olivia, "least-run", length="1.5")
    put(olivia, "least-run", length="2", gpu_class="H100")
    put(olivia, "least-run", length="3", gpu_class="L4")
    put(olivia, "least-run", length="", gpu_class="L4")
    put(olivia, "counting", counts="parts")
    put(olivia, "use", who="physics", allowed="no", what="borrow", gpu_class="H100")
    put(olivia, "listing", tenant_id=cirrus, allowed="no", gpu_class="B200")

    now = policies(world)
    assert now.cohorts["physics"].parent == "research"
    assert now.cohorts["physics"].tenant_id == cirrus
    assert now.units[unit].cohort == "physics"
    quota = now.quotas[unit, "H100"]
    assert (quota.nominal, quota.borrowing, quota.lending, quota.gpu_hours) == (7, None, 0, 90)
    assert quota.why == "because"
    [override] = now.overrides.values()
    assert (override.node, override.nominal, override.borrowing) == ("physics", 2, None)
    found = now.limits["subscriber", world.unit_id]
    assert (found.gpus, found.memory_mib, found.gpu_hours, found.period) == (5, 1_536, None, "day")
    assert found.money is not None and found.money.nanos == 20_000_000_000
    assert now.weights[unit] == 2_500_000
    assert (now.half_life_seconds, now.period_seconds) == (172_800, 604_800)
    assert now.least_runs == LeastRuns(5_400, (("H100", 7_200),))
    assert now.counts == "parts"
    assert now.permits["physics", "borrow", "H100"] is False
    permits = load(world.store, ListingPermits, settings.ENV.market)
    assert permits is not None and permits.allowed == {(cirrus, "B200"): False}


def test_the_least_running_time_of_a_class_is_shown_said_and_changed(
    world: World, olivia: Client
) -> None:
    put(olivia, "least-run", length="2", gpu_class="H100")
    world.settle()

    page = olivia.get(POLICIES).content.decode()
    form = olivia.get(f"{POLICIES}/least-run?gpu_class=H100").content.decode()

    assert "Leases of H100 2 h" in text(page.encode())
    assert f'href="{POLICIES}/least-run?gpu_class=H100"' in page
    assert 'name="length" value="2"' in form and 'value="H100"' in form
    said = shown(olivia)
    assert "Leases of H100 run 2 h at least before other bids interrupt them" in said
    put(olivia, "least-run", length="", gpu_class="H100")
    world.settle()
    assert "Leases of H100 have no least running time of their own any more" in shown(olivia)
    assert "Leases of H100" not in text(olivia.get(POLICIES).content)


def test_not_set_and_nothing_are_two_things_on_the_page(world: World, olivia: Client) -> None:
    unit = str(world.unit_id)

    put(olivia, "quota", node=unit, gpu_class="A100", nominal="3", borrowing="0")

    page = shown(olivia, POLICIES)
    assert "Language models A100 3 0 not set not set Change" in page
    form = olivia.get(f"{POLICIES}/quota?node={unit}&gpu_class=A100").content.decode()
    assert 'name="borrowing" value="0"' in form
    assert 'name="lending" placeholder="not set"' in form, "empty, as it is"


def test_a_reason_is_needed(world: World, olivia: Client) -> None:
    page = put(olivia, "half-life", length="48", why="", fails="This field is required")

    assert 'aria-describedby="id_why-hint id_why-error"' in page
    assert policies(world).half_life_seconds == 86_400


@pytest.mark.parametrize(
    ("kind", "fields", "at", "said"),
    [
        ("cohort", {"cohort": "Physics!"}, "cohort", "named by 1 to 40 lower-case letters"),
        ("quota", {"gpu_class": "H 100"}, "gpu_class", "A class of GPUs is a model or kind"),
        ("quota", {"gpu_class": "H100", "nominal": "-1"}, "nominal", "greater than or equal to 0"),
        ("half-life", {"length": "0.001"}, "length", "Choose from"),
        ("least-run", {"length": "25"}, "length", "Choose from 0 to 24 hours"),
        ("least-run", {"length": ""}, "length", "Say how long"),
        ("least-run", {"length": "1", "gpu_class": "H 100"}, "gpu_class", "A class of GPUs is"),
    ],
)
def test_a_refusal_is_shown_at_its_field(
    world: World, olivia: Client, kind: str, fields: dict[str, str], at: str, said: str
) -> None:
    page = put(olivia, kind, **{"node": str(world.unit_id), **fields}, fails=said)

    assert f'id="id_{at}-error"' in page


def test_an_override_that_ends_before_it_begins_is_refused_at_its_end(
    world: World, olivia: Client
) -> None:
    sent = {"node": str(world.unit_id), "gpu_class": "H100", "nominal": "9"}

    page = put(
        olivia,
        "override",
        **sent,
        starts_at=moment(3),
        ends_at=moment(1),
        fails="An override begins before it ends",
    )

    assert 'id="id_ends_at-error"' in page


def test_the_same_form_sent_twice_sets_one_override(world: World, olivia: Client) -> None:
    sent: dict[str, Any] = {
        "token": uuid4(),
        "node": str(world.unit_id),
        "gpu_class": "H100",
        "nominal": "9",
        "starts_at": moment(1),
        "ends_at": moment(3),
    }

    put(olivia, "override", **sent)
    put(olivia, "override", **sent)

    assert len(policies(world).overrides) == 1


def test_an_override_is_lifted_with_a_reason(world: World, olivia: Client) -> None:
    node = str(world.unit_id)
    span = {"starts_at": moment(1), "ends_at": moment(3)}
    put(olivia, "override", node=node, gpu_class="H100", nominal="9", **span)
    [override_id] = policies(world).overrides
    path = f"/fairness/overrides/{override_id}/lift"

    refused = olivia.post(path, {"market": settings.ENV.market, "why": " "})
    assert refused.status_code == 422
    assert "A reason is needed" in text(refused.content)
    lifted = olivia.post(path, {"market": settings.ENV.market, "why": "the paper is out"})

    assert lifted.status_code == 302
    assert policies(world).overrides == {}
    world.settle()
    assert "the paper is out" in shown(olivia)


def test_a_policy_is_tried_first_with_the_same_inputs_and_then_made_so(
    world: World, olivia: Client
) -> None:
    fields = {"node": str(world.unit_id), "gpu_class": "H100", "nominal": "0", "lending": "0"}

    to = put(olivia, "quota", **fields, do="try", why="")
    tried = olivia.get(to)

    assert "On the book as it is" in text(tried.content)
    page = tried.content.decode()
    assert policies(world).quotas[str(world.unit_id), "H100"].nominal == 1, "nothing is set"
    so = page.split('aria-labelledby="h-so"')[1].split("</form>")[0]
    for name, value in fields.items():
        assert f'type="hidden" name="{name}" value="{value}"' in so
    assert "borrowing not set" in text(tried.content)
    put(olivia, "quota", **fields)
    assert policies(world).quotas[str(world.unit_id), "H100"].nominal == 0


def test_what_cannot_be_set_cannot_be_tried_either(world: World, olivia: Client) -> None:
    page = olivia.get("/fairness/try?kind=cohort&cohort=Physics!")

    assert page.status_code == 422
    assert 'id="id_cohort-error"' in page.content.decode()


def test_a_tenants_operator_shares_out_the_grant_and_limits_its_people(
    world: World, dean: Client
) -> None:
    unit = str(world.unit_id)

    put(dean, "quota", node=unit, gpu_class="H100", nominal="3")
    put(dean, "limit", whom=f"subscriber:{unit}", gpus="2", period="week")
    page = put(
        dean, "quota", node=unit, gpu_class="H100", nominal="5", fails="than your organisation was"
    )

    assert 'id="id_nominal-error"' in page and "granted 4" in text(page.encode())
    now = policies(world)
    assert now.quotas[unit, "H100"].nominal == 3
    assert now.limits["subscriber", world.unit_id].tenant_id == world.tenant(CONSUMER)


def test_a_tenants_operator_is_shown_no_form_for_what_is_the_platforms(
    world: World, dean: Client
) -> None:
    page = dean.get(POLICIES).content.decode()

    assert f'href="{POLICIES}/quota"' in page
    for kind in (
        "cohort",
        "override",
        "half-life",
        "period",
        "least-run",
        "counting",
        "use",
        "listing",
    ):
        assert f'href="{POLICIES}/{kind}' not in page
        assert dean.get(f"{POLICIES}/{kind}").status_code == 403
        assert dean.post(f"{POLICIES}/{kind}", {}).status_code == 403


def test_a_tenants_operator_weighs_units_within_the_grant(world: World, dean: Client) -> None:
    unit = str(world.unit_id)
    form = dean.get(f"{POLICIES}/weight").content.decode()
    assert f'value="{unit}"' in form and 'value="cirrus"' not in form

    put(dean, "weight", node="cirrus", weight="9", fails="valid choice")
    put(dean, "weight", node=unit, weight="4")
    world.settle()

    now = policies(world)
    assert (now.weights[unit], now.weighed_in[unit]) == (4_000_000, "cirrus")
    page = dean.get(POLICIES).content.decode()
    assert f'href="{POLICIES}/weight?node={unit}' in page
    assert "Language models has weight 4 within cirrus" in shown(dean)


def test_a_tenants_operator_chooses_from_the_own_organisation_only(
    world: World, dean: Client
) -> None:
    form = dean.get(f"{POLICIES}/limit").content.decode()

    assert "Language models" in form
    assert "each person" not in form and "Aurora" not in form
    node = next(each for each in policies(world).units if each != str(world.unit_id))
    page = put(dean, "quota", node=node, gpu_class="H100", nominal="1", fails="valid choice")
    assert 'id="id_node-error"' in page


@pytest.mark.parametrize("role", ["consumer", "owner", "finance", "auditor"])
def test_who_is_no_operator_sees_no_form_and_sets_nothing(
    world: World, olivia: Client, role: str
) -> None:
    visitor = world.member(OWNER, role)

    page = visitor.get(POLICIES)

    assert page.status_code == 200
    assert "Set a policy" not in page.content.decode()
    for kind in ("quota", "cohort", "half-life"):
        assert visitor.get(f"{POLICIES}/{kind}").status_code == 403
        assert visitor.post(f"{POLICIES}/{kind}", {"length": "3"}).status_code == 403
    lift = f"/fairness/overrides/{uuid4()}/lift"
    assert visitor.post(lift, {"why": "no"}).status_code == 403
    assert policies(world).half_life_seconds == 86_400


def test_an_auditor_of_the_platform_sees_all_and_sets_nothing(world: World, olivia: Client) -> None:
    auditor = world.member(PLATFORM, "auditor")

    assert "nominal" not in shown(auditor, POLICIES)
    assert "Language models H100 1 3 not set 40" in shown(auditor, POLICIES)
    assert auditor.get(f"{POLICIES}/quota").status_code == 403


def test_more_is_asked_for_approved_by_a_token_shown_once_and_taken_up(
    world: World, olivia: Client
) -> None:
    consumer = world.member(CONSUMER, "consumer")
    asked = {
        "token": uuid4(),
        "market": settings.ENV.market,
        "subscriber_id": world.unit_id,
        "gpu_class": "H100",
        "nominal": "3",
        "starts_at": moment(-1),
        "ends_at": moment(48),
        "why": "the paper is due",
    }
    assert consumer.post("/fairness/requests/new", asked).status_code == 302
    world.settle()
    assert "the paper is due" in shown(consumer, POLICIES)
    decide = f"/fairness/requests/{asked['token']}/decide"
    assert consumer.post(decide, {"do": "approve"}).status_code == 403

    approved = text(olivia.post(decide, {"do": "approve"}).content)
    [request] = policies(world).requests.values()
    assert request.approved is not None
    token = str(request.approved.token_id)
    assert token in approved and "shown only once" in approved
    world.settle()
    assert token not in shown(olivia, POLICIES) + shown(consumer, POLICIES) + shown(olivia)

    take = f"/fairness/requests/{asked['token']}/take-up"
    wrong = consumer.post(take, {"token_id": "mine"})
    assert wrong.status_code == 422
    assert "That token does not take this quota up" in text(wrong.content)
    assert consumer.post(take, {"token_id": token}).status_code == 302
    world.settle()
    assert "Taken up" in shown(consumer, POLICIES)
    assert [each.nominal for each in policies(world).overrides.values()] == [3]


def test_a_request_is_declined_with_a_reason(world: World, olivia: Client) -> None:
    consumer = world.member(CONSUMER, "consumer")
    asked = {
        "token": uuid4(),
        "subscriber_id": world.unit_id,
        "gpu_class": "H100",
        "nominal": "3",
        "starts_at": moment(-1),
        "ends_at": moment(48),
        "why": "the paper is due",
    }
    consumer.post("/fairness/requests/new", asked)
    world.settle()
    decide = f"/fairness/requests/{asked['token']}/decide"

    assert "A reason is needed" in text(olivia.post(decide, {"do": "decline"}).content)
    olivia.post(decide, {"do": "decline", "why": "no room this week"})
    world.settle()

    assert "Answer: no room this week" in shown(consumer, POLICIES)


def test_nobody_asks_for_anothers_unit(world: World, olivia: Client) -> None:
    owner = world.member(OWNER, "consumer")

    refused = owner.post(
        "/fairness/requests/new",
        {
            "token": uuid4(),
            "subscriber_id": world.unit_id,
            "gpu_class": "H100",
            "nominal": "3",
            "starts_at": moment(-1),
            "ends_at": moment(48),
            "why": "mine now",
        },
    )

    assert refused.status_code == 422
    assert policies(world).requests == {}


def test_policies_are_set_in_the_market_that_is_looked_at(
    world: World, olivia: Client, settings: LazySettings
) -> None:
    settings.MARKETS = read_markets(settings.ENV.market, "asia=asia")

    put(olivia, "cohort", cohort="asians", market="asia")
    world.settle()

    assert "asians" in policies(world, "asia").cohorts
    assert "asians" not in policies(world).cohorts
    there = olivia.get(f"{POLICIES}?market=asia").content.decode()
    assert f'href="{POLICIES}?market=asia" aria-current="true"' in there
    assert f'href="{POLICIES}/quota?market=asia"' in there
    form = olivia.get(f"{POLICIES}/unit?market=asia").content.decode()
    assert 'value="asians"' in form and 'value="research"' not in form
    assert 'name="market" value="asia"' in form
    sent = {"token": uuid4(), "cohort": "martians", "market": "moon", "why": "because"}
    assert olivia.post(f"{POLICIES}/cohort", sent).status_code == 409, "no market of that name"
