"""What a bid names goes by name alone to its lease and its host; what is not kept is refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from ledger.domain.ids import HostId
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseShareRow
from marketplace.queries.leases import assignments_for
from metering.api.agent import _spoken
from tests.access.conftest import Caller
from tests.marketplace.secrets.conftest import VALUE
from tests.marketplace.secrets.hunting import tables_with
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import body, read
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


def bid(ada: Caller, unit: str, *secrets: str, **more: Any) -> Any:
    work = {"kind": "other", "command": ["true"], "secrets": secrets, **more}
    return ada.post("/api/v1/bids", body(unit, workload=work))


@pytest.fixture
def token(ada: Caller) -> str:
    for name in ("HF_TOKEN", "WANDB_KEY"):
        assert ada.ask("PUT", f"/api/v1/secrets/{name}", {"value": VALUE}).status_code == 200
    return "HF_TOKEN"


def test_names_go_with_the_bid_to_its_lease_and_its_host(
    ada: Caller, unit: str, market: Market, token: str
) -> None:
    placed = bid(ada, unit, "HF_TOKEN", "WANDB_KEY", secret_variables=["WANDB_KEY"])
    assert placed.status_code == 201, placed.content
    read()
    shown = ada.get(f"/api/v1/bids/{placed.json()['id']}").json()["workload"]
    uses = {each["name"]: each["used_by"] for each in ada.get("/api/v1/secrets").json()["data"]}
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()
    LeaseShareRow.objects.update(phase="run")
    [wanted] = assignments_for(HostId(LeaseShareRow.objects.get().host_id))
    spoken = _spoken(wanted)

    assert shown["secrets"] == ["HF_TOKEN", "WANDB_KEY"]
    assert shown["secret_variables"] == ["WANDB_KEY"]
    assert uses == {"HF_TOKEN": 1, "WANDB_KEY": 1}
    assert spoken is not None
    assert (spoken.secrets, spoken.secret_variables) == (("HF_TOKEN", "WANDB_KEY"), ("WANDB_KEY",))
    assert tables_with(VALUE) == []


def test_a_secret_that_is_not_kept_or_of_others_is_refused_at_the_bid(
    ada: Caller, bob: Caller, unit: str, market: Market, token: str
) -> None:
    bob.ask("PUT", "/api/v1/secrets/BOBS", {"value": VALUE})
    ada.ask("PUT", "/api/v1/secrets/GONE", {"value": VALUE})
    ada.delete("/api/v1/secrets/GONE")

    for name in ("BOBS", "GONE", "NEVER"):
        refused = bid(ada, unit, token, name)
        assert (refused.status_code, refused.json()["code"]) == (409, "secret-missing")
        assert refused.json()["details"] == {"secrets": [name]}
    read()
    assert not BidRow.objects.exists()


@pytest.mark.parametrize(
    "more",
    [
        {"secrets": ["HF_TOKEN", "HF_TOKEN"]},
        {"secrets": [f"S{number}" for number in range(17)]},
        {"secrets": ["../passwd"]},
        {"secrets": ["OFFPEAK_LEASE_ID"]},
        {"secrets": ["HF_TOKEN"], "secret_variables": ["WANDB_KEY"]},
        {
            "secrets": ["HF_TOKEN"],
            "secret_variables": ["HF_TOKEN"],
            "environment": {"HF_TOKEN": "mine"},
        },
    ],
)
def test_names_that_cannot_be_handed_over_are_refused(
    ada: Caller, unit: str, market: Market, token: str, more: dict[str, Any]
) -> None:
    work = {"kind": "other", "command": ["true"], **more}

    assert ada.post("/api/v1/bids", body(unit, workload=work)).status_code == 422
