"""openb's replay: models of GPUs, and pods that hold parts; on a synthetic set from a seed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from tests.simulation import filling, openb, openb_runs, static
from tests.simulation.openb import WHOLE, Kind, Openb, Pods
from tests.simulation.parts import Mix, Parts
from tests.simulation.rules import Rules
from tests.simulation.sharing import Shared, Sharing
from tests.simulation.traces import DAY

OWNERS = 3
ANY = frozenset[str]()
A, B = Kind("A", 2), Kind("B", 4)
PRICE = {"A": 0.0, "B": 1.0}


def pods(*rows: tuple[float, float, int, int, int, int, bool], models: str = "") -> Pods:
    """Return pods of (came, length, GPUs, thousandths, place in specs, owner, can pause)."""
    came, length, gpus, milli, spec, owner, can_pause = zip(*rows, strict=True)
    return Pods(
        np.array(came, dtype=np.float64),
        np.array(length, dtype=np.float64),
        np.array(gpus),
        np.array(milli),
        np.array(spec),
        np.array(can_pause),
        tuple(str(row) for row in rows),
        (ANY, frozenset({models})),
        np.array(owner),
    )


@pytest.fixture(scope="module")
def trace() -> Openb:
    return openb.synthetic(3, days=5, per_hour=5.0)


@pytest.fixture(scope="module")
def compared(trace: Openb) -> openb_runs.Row:
    return openb_runs.compare(trace, OWNERS, "application")


# --- places -------------------------------------------------------------------------------------


def test_parts_share_a_gpu_as_long_as_they_fit() -> None:
    parts = Parts([(Kind("A", 2), 0)], pods((0, 1, 1, 500, 0, 0, False)), PRICE)

    for milli, gpu in ((500, 0), (600, 1), (400, 1), (500, 0)):
        held = parts.place(1, milli, 0)
        assert held == [(gpu, milli)]
        parts.hold(held)

    assert parts.place(1, 100, 0) is None
    assert parts.held == 2 * WHOLE


def test_whole_gpus_lie_on_one_host_of_a_model_that_will_do() -> None:
    asked = pods((0, 1, 2, WHOLE, 1, 0, False), models="B")
    parts = Parts([(A, 0), (B, 1), (B, 0)], asked, PRICE)

    assert parts.place(2, WHOLE, 0) == [(0, WHOLE), (1, WHOLE)]
    assert parts.place(2, WHOLE, 1) == [(2, WHOLE), (3, WHOLE)]
    assert parts.place(2, WHOLE, 1, owner=0) == [(6, WHOLE), (7, WHOLE)]
    assert parts.place(5, WHOLE, 0) is None


def test_what_is_stranded_is_what_the_mean_pod_cannot_use() -> None:
    asked = pods((0, 1, 1, 500, 0, 0, False), (0, 1, 2, WHOLE, 0, 0, False))
    parts = Parts([(A, 0)], asked, PRICE)

    parts.hold([(0, 700)])

    # Half of the pods can't use the 300; the other half needs two whole GPUs and can use nothing.
    assert Mix(asked).stranded(parts) == pytest.approx(0.5 * 0.3 + 0.5 * 1.3)


# --- in time ------------------------------------------------------------------------------------


def run(asked: Pods, hosts: list[tuple[Kind, int]], *, market: bool = True) -> Shared:
    return Sharing(asked, hosts, PRICE, 10 * DAY, market=market).run()


def test_an_owner_has_its_gpus_back_after_the_notice_and_who_held_them_goes_on_later() -> None:
    asked = pods(
        (0, 9_000, 1, 500, 0, 1, False),
        (0, 9_000, 1, 400, 0, 1, False),
        (0, 50_000, 1, WHOLE, 0, 1, False),
        (5_000, 20_000, 2, WHOLE, 0, 0, False),
    )

    out = run(asked, [(A, 0)])

    notice, resume = Rules().notice, Rules().resume
    assert out.started.tolist() == [0, 0, 0, 5_000 + notice]
    assert len(out.resumed_after["reclaimed"]) == 3
    back = 5_000 + notice + 20_000
    assert out.ended[0] == back + resume + 4_000
    assert out.stood[0] == back - 5_000


def test_without_a_market_nobody_leaves_its_own_hosts() -> None:
    asked = pods((0, 9_000, 1, WHOLE, 0, 1, False))

    assert np.isinf(run(asked, [(A, 0)], market=False).started).all()


@pytest.mark.parametrize("can_pause", [True, False])
def test_what_may_pause_makes_room_past_its_firm_hour_and_a_service_never_does(
    *, can_pause: bool
) -> None:
    asked = pods((0, 50_000, 2, WHOLE, 0, 1, can_pause), (7_200, 60, 1, WHOLE, 0, 1, False))

    out = run(asked, [(A, 0)])

    assert out.started[1] == (7_200 + Rules().notice if can_pause else 50_000)


def test_no_gpu_is_held_by_more_than_a_whole_and_every_pod_has_its_time_and_model(
    trace: Openb,
) -> None:
    asked = trace.pods.owned(OWNERS, "application")
    hosts = [(Kind("G2", 8), 0), (Kind("T4", 2), 1), (Kind("T4", 2), 2), (Kind("P100", 2), 1)]
    hosts += [(Kind("V100M32", 4), 2)]
    replay = Recorded(asked, hosts, openb.scarcity(asked, trace.inventory), trace.horizon)

    out = replay.run()

    assert out.resumed_after, "nobody was interrupted: there is too much room for this test"
    assert np.isfinite(out.ended).all()
    assert (out.ended - asked.arrival >= asked.duration - 1e-6).all()
    changes: dict[int, list[tuple[float, int]]] = defaultdict(list)
    models = [kind.model for kind, _ in hosts for _ in range(kind.gpus)]
    host_of = [host for host, (kind, _) in enumerate(hosts) for _ in range(kind.gpus)]
    for pod, held, since, until in replay.history:
        assert sum(milli for _, milli in held) == asked.size[pod]
        assert len({host_of[gpu] for gpu, _ in held}) == 1
        for gpu, milli in held:
            wanted = asked.specs[asked.spec[pod]]
            assert not wanted or models[gpu] in wanted
            changes[gpu] += [(since, milli), (until, -milli)]
    for steps in changes.values():
        assert np.cumsum([change for _, change in sorted(steps)]).max() <= WHOLE


class Recorded(Sharing):
    """A replay that keeps who held what."""

    def __init__(
        self, asked: Pods, hosts: list[tuple[Kind, int]], price: dict[str, float], horizon: float
    ) -> None:
        super().__init__(asked, hosts, price, horizon, market=True)
        self.history: list[tuple[int, list[tuple[int, int]], float, float]] = []

    def _release(self, pod: int, now: float) -> None:
        if self.held_since[pod] < now:
            self.history.append((pod, self.places[pod], self.held_since[pod], now))
        super()._release(pod, now)


# --- who owns what, and how many GPUs that takes ------------------------------------------------


def test_an_application_has_one_owner_and_the_same_seed_the_same_owners(trace: Openb) -> None:
    owned = trace.pods.owned(OWNERS, "application")

    owners: dict[str, set[int]] = defaultdict(set)
    for name, owner in zip(owned.application, owned.owner.tolist(), strict=True):
        owners[name].add(owner)
    assert all(len(each) == 1 for each in owners.values())
    assert set(owned.owner.tolist()) == set(range(OWNERS))
    again = trace.pods.owned(OWNERS, "application").owner
    assert (again == owned.owner).all()
    assert (trace.pods.owned(OWNERS, "application", seed=1).owner != owned.owner).any()


def test_sharing_takes_fewer_gpus_for_equal_service(compared: openb_runs.Row) -> None:
    alone, market = compared["alone"], compared["market"]

    assert market["gpus"] < alone["gpus"]
    assert market["u_asked"] > alone["u_asked"]
    assert openb_runs.equal_service(market, alone)
    assert market["harm"] <= 0
    assert market["gang_max"] <= openb_runs.WAIT_MAX / 60


def test_one_host_less_would_not_do_for_an_owner_alone(trace: Openb) -> None:
    mine = trace.pods.owned(OWNERS, "application")
    price = openb.scarcity(mine, trace.inventory)
    sized = openb_runs.right_sized(mine, trace, OWNERS, price)

    for owner, fleet in enumerate(sized):
        own = mine.of(mine.owner == owner)
        for kind in fleet:
            hosts = [(each, owner) for each in (fleet - type(fleet)({kind: 1})).elements()]
            out = Sharing(own, hosts, price, trace.horizon, market=False).run()
            waits = out.started - own.arrival
            assert (
                waits.max() > openb_runs.WAIT_MAX
                or np.percentile(waits, 95) > static.P95_MINUTES * 60
                or (waits > 900).mean() > static.LATE_SHARE
            )


# --- filling an inventory -----------------------------------------------------------------------


def test_an_instance_gives_at_least_what_was_asked_for() -> None:
    assert [filling.profile_for(milli) for milli in (110, 230, 320, 470, 571, 650, WHOLE)] == [
        "1g.10gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "4g.40gb",
        None,
        None,
    ]


def test_instances_on_one_card_coexist() -> None:
    asked = pods((0, 1, 1, 470, 0, 0, False))
    parts = filling.Instanced([(Kind("A", 1), 0)], asked, PRICE)

    found = []
    for milli in (470, 470, 320, 110):
        held = parts.place(1, milli, 0)
        if held is not None:
            parts.hold(held)
        found.append(held is not None)

    # Four sevenths twice is too much; four and three fill the card.
    assert found == [True, False, True, False]


def test_parts_fill_an_inventory_further_than_instances_and_those_than_whole_gpus(
    trace: Openb,
) -> None:
    few = replace(trace, inventory={kind: max(1, n // 4) for kind, n in trace.inventory.items()})

    rows = filling.compare(few, OWNERS)

    useful = {(row["slicing"], row["alone"]): row["useful"] for row in rows}
    for alone in (True, False):
        assert useful["shares", alone] > useful["mig", alone] > useful["whole", alone]
    for row in rows:
        assert row["useful"] <= row["held"] + 1e-9 <= 1 + 1e-9
