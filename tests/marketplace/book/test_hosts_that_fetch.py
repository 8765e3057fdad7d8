"""Work that begins with a source goes to hosts that fetch, and waits where none does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marketplace.domain.facts.events import Patience, Workload
from marketplace.queries.books import explain_bid
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

BRIEF = [(NOON, NOON + timedelta(minutes=90))]
WORK = Workload("other", command=("x",), fetch="git+https://git.example/lab/train")


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_host_that_does_not_say_so_never_gets_it(patience: Patience) -> None:
    market = Market()
    market.offer("silent", windows=BRIEF)
    market.offer("files", windows=BRIEF)
    market.agent("files", "full", "files", "secrets", "podman", "network-open")
    waits = market.bid("waits", at=9, work=WORK, patience=patience)
    market.run()
    assert market.grants() == {}
    told = explain_bid(market.store, market=MARKET, bid_id=waits, now=market.now)
    assert told is not None and told.reason == "abilities"

    market.wait(minutes=2)
    market.offer("fetches", windows=BRIEF)
    market.agent("fetches", "process", "fetch")
    market.bid("gets", at=9, work=WORK, patience=patience)
    market.run()

    shares = [share for grant in market.grants().values() for share in grant.shares]
    uuids = [uuid for share in shares for uuid in share.gpu_uuids]
    assert uuids and all(uuid.startswith("fetches") for uuid in uuids)
