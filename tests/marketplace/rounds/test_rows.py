"""A round's certificate on its row and in the API."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from ledger.eventstore import default_store
from ledger.following import follow_projections
from ledger.rebuilding import fingerprint, rebuild
from marketplace.api.rounds import RoundShape
from marketplace.domain.facts.events import Certificate, RoundCleared
from marketplace.models.rounds import RoundRow, TradeRow
from marketplace.projections.rounds import PROJECTIONS
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

pytestmark = pytest.mark.django_db


def cleared(market: Market, certificate: Certificate | None) -> RoundCleared:
    event = RoundCleared(
        market=MARKET, round_id=uuid4(), lane="round", through=1, bids=3, offers=2, grants=0,
        gpus=0, unmatched=(), price_low=0, price_high=0, rule="welfare-1", at=NOON,
        certificate=certificate,
    )  # fmt: skip
    market.put(f"market-{MARKET}", event)
    follow_projections(market.store, PROJECTIONS)
    return event


def certificate(welfare: int, bound: int) -> Certificate:
    return Certificate(
        welfare_nanos=welfare, bound_nanos=bound, seed=7, iterations=(("greedy", 1), ("lns", 40)),
        slots=24, pools=3, price_mean=1_500_000_000, capped=1, paradoxical=2,
        paradoxical_nanos=10,
    )  # fmt: skip


def test_a_certificate_is_shown_with_its_gap() -> None:
    event = cleared(Market(default_store()), certificate(995_000_000_000, 1_000_000_000_000))

    shape = RoundShape(RoundRow.objects.get(round_id=event.round_id)).data["certificate"]

    assert shape["gap_ppm"] == 5_000
    assert (shape["welfare"], shape["bound"], shape["seed"]) == ("995.00", "1000.00", 7)
    assert shape["iterations"] == {"greedy": 1, "lns": 40}


def test_a_gap_is_never_rounded_away() -> None:
    event = cleared(Market(default_store()), certificate(10**15 - 1, 10**15))

    assert RoundRow.objects.get(round_id=event.round_id).certified["gap_ppm"] == 1  # type: ignore[index]


def test_a_round_without_a_certificate_says_so() -> None:
    event = cleared(Market(default_store()), None)

    shape = RoundShape(RoundRow.objects.get(round_id=event.round_id)).data

    assert json.loads(json.dumps(shape["certificate"])) is None


def test_rows_with_certificates_equal_their_rebuild() -> None:
    market = Market(default_store())
    market.offer("a", gpus=2)
    market.bid("x")
    market.run()
    market.take_up()
    cleared(market, certificate(1, 2))
    (projection,) = PROJECTIONS
    live = fingerprint(projection.tables)

    rebuild(market.store, projection)

    assert fingerprint(projection.tables) == live
    assert TradeRow.objects.get().round_id in set(
        RoundRow.objects.values_list("round_id", flat=True)
    )
