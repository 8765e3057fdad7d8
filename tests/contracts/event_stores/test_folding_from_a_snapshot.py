"""On every store a snapshot says where to read on, and an engine that starts there misses nothing.

The keeper names places in the log by the positions of facts that it read, so what stands for a
position has to work as a place to read on from.
"""

from __future__ import annotations

from uuid import uuid4

from marketplace.domain.book.snapshot import state_of
from marketplace.folding import Folding, to_the_end
from marketplace.keeper import Keeper
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import usable
from tests.contracts.event_stores.given import Rig
from tests.marketplace.support.market import Market


def test_a_fold_goes_on_from_a_snapshot_at_any_point(rig: Rig) -> None:
    market, snapshots = Market(rig.store, name=f"m-{uuid4().hex[:8]}"), MemorySnapshots()
    market.keep(snapshots, facts=1)
    kept = 0
    for number in range(6):
        word = f"{market.name} {number}"
        market.offer(word, gpus=2)
        market.bid(word, gpus=1)
        if number % 2:
            market.run()
        market.bid(f"{word} waits", at="0.10")
        Keeper(rig.another(), market.name, snapshots=snapshots, snapshot_facts=1).run_once(
            now=market.now
        )
        snapshot = usable(snapshots, rig.store, market.name)
        if snapshot is None:
            continue
        kept += 1
        whole = to_the_end(Folding(market.name), rig.store)
        again = to_the_end(Folding(market.name, snapshot), rig.another())
        assert state_of(again.book) == state_of(whole.book)
        assert (again.version, again.decision_id) == (whole.version, whole.decision_id)
        assert [each.id for _, each in again.waiting] == [each.id for _, each in whole.waiting]
    assert kept == 5

    market.engine = market.new_engine()
    market.run()
    assert len(market.grants()) == 6
