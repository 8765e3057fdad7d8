"""Contested charges on pages: the evidence, what both sides say, and how somebody decides."""

from __future__ import annotations

from dataclasses import fields

import pytest
from django.test import Client

from ledger.models import PostingRow
from ledger.queries.money import disagreements
from tests.pages.disputed import Disputed
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def market(world: World) -> Disputed:
    """A lease whose owner metered on when its work was gone."""
    market = Disputed(**{each.name: getattr(world, each.name) for each in fields(world)})
    market.work()
    return market


def path_of(market: Disputed) -> str:
    return f"/finance/disputes/{market.dispute.dispute_id}"


def shown(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content[:2000]
    return " ".join(html(answer.content).split())


def test_meters_that_differ_are_a_dispute_that_both_sides_and_finance_see(market: Disputed) -> None:
    assert market.compare() >= 1
    lease = f"/leases/{market.lease.lease_id}"

    for slug, role in ((CONSUMER, "consumer"), (OWNER, "owner"), (PLATFORM, "finance")):
        client = market.member(slug, role)
        found = shown(client, path_of(market))
        assert "rule: two meters differ" in found
        assert "no sign of life" in found and "GPU-0" in found
        assert path_of(market) in shown(client, "/finance/disputes")
    for slug, role in ((CONSUMER, "consumer"), (OWNER, "owner")):
        assert path_of(market) in shown(market.member(slug, role), lease)


def test_both_sides_speak_and_finance_gives_back_a_part(market: Disputed) -> None:
    market.compare()
    path = path_of(market)
    consumer, owner = market.member(CONSUMER, "consumer"), market.member(OWNER, "owner")
    finance = market.member(PLATFORM, "finance")

    consumer.post(f"{path}/say", {"text": "Its log ends after 25 minutes."})
    owner.post(f"{path}/say", {"text": "The card was yours until the end."})
    market.settle()
    found = shown(finance, path)
    assert "Its log ends after 25 minutes." in found and "The card was yours" in found

    reason = {"reason": "half of it", "part": "0.10", "outcome": "uphold"}
    assert owner.post(f"{path}/decide", reason).status_code == 422
    assert finance.post(f"{path}/decide", {**reason, "part": "99"}).status_code == 422
    assert finance.post(f"{path}/decide", reason).status_code == 302
    market.settle()

    row = market.dispute
    assert (row.state, row.given_nanos) == ("in-part", 100_000_000)
    assert (
        sum(line.nanos for line in PostingRow.objects.filter(kind="use-credit", nanos__gt=0))
        == row.given_nanos
    )
    assert disagreements() == []
    decided = shown(consumer, path)
    assert "Given back in part" in decided and "Given back after disputes" in decided
    assert consumer.post(f"{path}/say", {"text": "too late"}).status_code == 422


def test_a_consumer_contests_a_charge_on_the_page_of_its_lease(market: Disputed) -> None:
    consumer = market.member(CONSUMER, "consumer")
    path = f"/leases/{market.lease.lease_id}/contest"
    entries = sorted({line.entry_id for line in PostingRow.objects.filter(kind="usage")}, key=str)
    form = {"entry_id": str(entries[0]), "used": "0", "reason": "it never ran"}

    assert "GPU-hours" in shown(consumer, path)
    assert consumer.post(path, {**form, "reason": ""}).status_code == 422
    assert consumer.post(path, {**form, "used": "99"}).status_code == 422
    assert consumer.post(path, form).status_code == 302
    market.settle()

    assert market.dispute.reason == "it never ran"
    assert market.member(OWNER, "owner").get(path).status_code in (403, 404)


def test_who_is_no_part_of_it_sees_nothing(market: Disputed) -> None:
    market.compare()
    path = path_of(market)
    stranger = market.member(PLATFORM, "consumer")

    assert "No open disputes" in shown(stranger, "/finance/disputes")
    assert stranger.get(path).status_code == 404
    assert stranger.post(f"{path}/say", {"text": "me, too"}).status_code == 404
