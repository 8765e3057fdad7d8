"""What the pages of rounds say: granted, refused and why, proved, and cleared again."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ledger.eventstore.port import Expect, NewEvent
from marketplace.domain.facts.events import Certificate, RoundCleared
from marketplace.models.rounds import RoundRow
from tests.pages.bid_form import form as bid_form
from tests.pages.reading import text
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def traded(world: World) -> World:
    world.list_gpus(0, 1, floor="2.00")
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(gpus="1", limit="3.00"))
    consumer.post("/bids/new", bid_form(limit="1.50", token=str(uuid4())))
    world.settle()
    return world


def test_a_granted_round_shows_curves_grants_and_that_it_replays(traded: World) -> None:
    row = RoundRow.objects.get(grants=1)

    answer = traded.member(OWNER, "owner").get(f"/rounds/{row.round_id}")

    page = text(answer.content)
    assert "Replayed: identical" in page
    assert "1 × H100-80GB" in page
    assert 'aria-label="H100-80GB supply and demand. Supply: 2 GPUs at floors' in (
        answer.content.decode()
    )
    assert "Paid on average: $2.00 per GPU-hour." in answer.content.decode()
    assert "Cirrus" not in page


def test_a_round_is_cleared_again_under_other_rules(traded: World) -> None:
    row = RoundRow.objects.get(grants=1)
    visitor = traded.member(OWNER, "owner")

    page = text(visitor.get(f"/rounds/{row.round_id}?price=limit&preemption=no").content)
    asked = f"/api/v1/rounds/{row.round_id}/otherwise"
    answer = visitor.get(f"{asked}?price=limit").json()
    wrong = visitor.get(f"/rounds/{row.round_id}?price=dice")

    assert "Mean price per GPU-h $2.00 $3.00" in page
    assert "The same bids would have been granted." in page
    assert (answer["recorded"]["price_mean"], answer["otherwise"]["price_mean"]) == ("2.00", "3.00")
    assert answer["otherwise"]["bidders_gain"] == "0.00"
    assert wrong.status_code == 422 and "Rules are a price rule" in text(wrong.content)
    assert visitor.get(f"{asked}?price=dice").status_code == 422


def test_a_round_that_refused_says_why(traded: World) -> None:
    row = RoundRow.objects.get(grants=0)

    page = text(traded.member(OWNER, "owner").get(f"/rounds/{row.round_id}").content)

    assert "1 bid got nothing." in page
    assert "the floor price is above the limit price 1" in page


def test_the_list_leads_to_each_round_and_can_be_narrowed(traded: World) -> None:
    visitor = traded.member(OWNER, "owner")
    rows = RoundRow.objects.all()

    every = visitor.get("/rounds").content.decode()
    none = visitor.get("/rounds?lane=round").content.decode()
    older = visitor.get(f"/rounds?before={max(row.position for row in rows)}").content.decode()

    assert all(f'href="/rounds/{row.round_id}"' in every for row in rows)
    assert "No round has decided anything" in none
    assert older.count('href="/rounds/') == len(rows) - 1


def test_a_certificate_is_put_in_words(traded: World) -> None:
    certificate = Certificate(
        welfare_nanos=99_000_000_000, bound_nanos=100_000_000_000, seed=3,
        iterations=(("greedy", 1), ("on-demand USD search", 70), ("sweep", 9)),
        slots=24, pools=2, price_mean=2_000_000_000, capped=0,
        paradoxical=1, paradoxical_nanos=500_000_000,
    )  # fmt: skip
    cleared = RoundCleared(
        market="main", round_id=uuid4(), lane="round", through=traded.store.head(), bids=1,
        offers=1, grants=0, gpus=0, unmatched=(), price_low=0, price_high=0, rule="welfare-0",
        at=traded.now, certificate=certificate,
    )  # fmt: skip
    traded.store.append("market-main", [NewEvent(uuid4(), cleared)], expected=Expect.ANY, by=BY)
    traded.engine = traded.new_engine()
    traded.settle()

    page = text(traded.member(OWNER, "owner").get(f"/rounds/{cleared.round_id}").content)

    assert "worth $99.00" in page
    assert "at most 1.0% was left undone" in page
    assert "greedy 1 Moves of the search, on demand USD 70" in page
    assert "Bids of the last sweep before time was up 9" in page
    assert "1 bid got nothing although the limit was above the round's price" in page


def test_a_round_that_never_was_is_not_found(world: World) -> None:
    assert world.member(OWNER, "owner").get(f"/rounds/{uuid4()}").status_code == 404
