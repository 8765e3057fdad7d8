"""The demo's week goes through the real commands and engine, so the market's invariants hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from config.demo.founding import found
from config.demo.pump import Pump
from config.demo.seeding import found_platform
from config.demo.week import Week
from config.env import Env
from config.management.commands.demo import policies_of_the_week
from ledger.domain.ids import LeaseId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Recorded
from marketplace.domain.facts.events import (
    LeaseClosed,
    LeaseInterrupted,
    LeaseScheduled,
)
from tests.conftest import NOON
from tests.simulation.closing import check_charges, check_ends

pytestmark = pytest.mark.django_db  # the cast's people are rows


@pytest.fixture(scope="module")
def week(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Recorded]:
    store = MemoryStore()
    pump = Pump(store, policies_of_the_week(Env()))
    before = NOON - timedelta(days=7, hours=1)
    found_platform(store, Env(), before)
    with django_db_blocker.unblock(), transaction.atomic():
        home = tmp_path_factory.mktemp("home")
        found(store, home=home, market="main", currency="USD", now=before)
        transaction.set_rollback(True)  # the cast's people are rows, and other modules know none
    pump.run()
    Week(store, pump, market="main", currency="USD", ends_at=NOON).run()
    return list(store.read_all(limit=1_000_000).events)


def test_it_is_a_busy_week(week: list[Recorded]) -> None:
    counted = Counter(recorded.type for recorded in week)
    for name, least in {
        "marketplace.lease-closed": 150,
        "ledger.usage-captured": 500,
        "marketplace.bid-expired": 5,
        "marketplace.reclaim-requested": 3,
        "ledger.compensation-paid": 1,
    }.items():
        assert counted[name] >= least, name


def test_no_gpu_is_leased_twice_at_one_instant(week: list[Recorded]) -> None:
    ends: dict[LeaseId, datetime] = {
        recorded.event.lease_id: recorded.event.at
        for recorded in week
        if isinstance(recorded.event, LeaseClosed)
    }
    ends |= {
        recorded.event.lease_id: recorded.event.stop_at
        for recorded in week
        if isinstance(recorded.event, LeaseInterrupted)
    }
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for recorded in week:
        if isinstance(recorded.event, LeaseScheduled):
            lease = recorded.event
            end = min(lease.window.ends_at, ends.get(lease.lease_id, lease.window.ends_at))
            for share in lease.shares:
                for uuid in share.gpu_uuids:
                    spans[uuid].append((lease.window.starts_at, end))
    for uuid, taken in spans.items():
        taken.sort()
        for (_, end), (start, _) in pairwise(taken):
            assert end <= start, uuid


def test_every_entry_sums_to_zero_and_every_charge_is_price_times_use(week: list[Recorded]) -> None:
    check_charges(week)


def test_every_lease_that_ended_has_a_reason_and_gave_its_hold_back(week: list[Recorded]) -> None:
    assert check_ends(week)
