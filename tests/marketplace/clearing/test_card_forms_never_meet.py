"""Whatever is listed and withdrawn when: a card is never held in two forms at one instant.

Offers here may even list a card in two forms at one time, which a host's stream refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import combinations
from random import Random

import pytest

from ledger.domain.ids import LeaseId
from listings.domain.divisions import are_rivals, read_share
from listings.domain.events import Division, Part
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import LeaseClosed, LeaseGranted, RoundCleared
from tests.marketplace.support.market import Market

FORMS = (
    None,
    Division("mps", 4),
    Division("mps", 2),
    Division("mps", parts=(Part(40_000, 60), Part(20_000, 25))),
    Division("timeslice", 3),
)
BY_MIG = (
    *FORMS,
    Division("mig", profiles=("3g.40gb", "3g.40gb")),
    Division("mig", profiles=("3g.40gb", "2g.20gb", "1g.10gb+me", "1g.10gb")),
)
"""A bid for several GPUs may have several instances, so only a host's stream keeps it from a card
and an instance of it: with these, bids want one."""
QUERIES = (
    "",
    "gpu=H100",
    "isolation=mig",
    "gpu=H100-1g.10gb",
    "isolation=mps",
    "isolation=timeslice",
    "isolation=cooperative share>=50%",
)
ACTS = 60


def live(
    seed: int, forms: Sequence[Division | None]
) -> tuple[list[LeaseGranted], dict[LeaseId, datetime], list[RoundCleared]]:
    """Play a random market of three cards on two hosts; return its grants, ends and rounds."""
    rng = Random(seed)
    market = Market()
    offers: list[str] = []
    gone = set[LeaseId]()
    for act in range(ACTS):
        market.wait(seconds=rng.choice((0, 1, 61, 600)))
        match rng.choices(("offer", "bid", "withdraw", "close"), (3, 8, 2, 2))[0]:
            case "offer":
                opens = market.now + timedelta(hours=rng.choice((-1, 0, 2)))
                market.offer(
                    f"o{act}",
                    host=rng.choice("ab"),
                    gpus=2,
                    only=rng.choice(([0], [0, 1])),
                    division=rng.choice(forms),
                    at=rng.choice((0.5, 1)),
                    windows=[(opens, opens + timedelta(hours=rng.choice((4, 9))))],
                    cleaning=timedelta(minutes=rng.choice((0, 5))),
                )
                offers.append(f"o{act}")
            case "bid":
                market.bid(
                    f"b{act}",
                    gpus=rng.choice((1, 1, 1, 2 if forms is FORMS else 1)),
                    hours=rng.choice((0.5, 1, 3)),
                    at=rng.choice((1, 2, 3)),
                    start=market.now + timedelta(hours=rng.choice((0, 0, 2))),
                    request=read_query(rng.choice(QUERIES)),
                    patience=rng.choice(("immediate", "patient")),
                )
            case "withdraw" if offers:
                market.change_offer(offers.pop(rng.randrange(len(offers))), "withdraw")
            case _:
                held = {
                    granted.lease_id: granted
                    for granted in market.grants().values()
                    if granted.lease_id not in gone and granted.window.ends_at > market.now
                }
                if held:
                    lease_id = rng.choice(sorted(held))
                    gone.add(lease_id)
                    market.put(f"lease-{lease_id}", closed(market, lease_id))
        market.run()
    events = [each.event for each in market.store.read_all(limit=100_000).events]
    return (
        [each for each in events if isinstance(each, LeaseGranted)],
        {each.lease_id: each.at for each in events if isinstance(each, LeaseClosed)},
        [each for each in events if isinstance(each, RoundCleared)],
    )


def closed(market: Market, lease_id: LeaseId) -> LeaseClosed:
    return LeaseClosed(
        lease_id=lease_id,
        market=market.name,
        reason=101,
        failed=False,
        compensation=None,
        compensation_from=None,
        at=market.now,
    )


@pytest.mark.parametrize("forms", [FORMS, BY_MIG], ids=["shares", "mig"])
@pytest.mark.parametrize("seed", range(24))
def test_no_card_is_held_in_two_forms_nor_a_share_twice(
    seed: int, forms: Sequence[Division | None]
) -> None:
    grants, ends, rounds = live(seed, forms)

    held = [
        (
            uuid,
            granted.window.starts_at,
            min(granted.window.ends_at, ends.get(granted.lease_id, granted.window.ends_at)),
        )
        for granted in grants
        for share in granted.shares
        for uuid in share.gpu_uuids
    ]
    assert len(held) > 5
    for (one, starts, until), (other, begins, over) in combinations(held, 2):
        if one == other or are_rivals(one, other):
            assert until <= begins or over <= starts, f"{one} beside {other}"
    for granted in grants:
        uuids = [uuid for share in granted.shares for uuid in share.gpu_uuids]
        shares = [share for uuid in uuids if (share := read_share(uuid)) is not None]
        assert len(uuids) == 1 or not shares
    assert not any(each.reason == "unverified" for cleared in rounds for each in cleared.unmatched)
