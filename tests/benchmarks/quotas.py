"""Admissions under quota through the durable store: each bid and each grant is on the disk.

The shape of `admission` (Kueue's: 5 cohorts of 6 units, each with a nominal quota of 20 GPUs) in
place of its rules alone: bids come in by the front's own function, with token, bucket and hold; the
engine reads them from PostgreSQL, decides under the quotas, and its grants are committed before
they count. Every unit asks for half as much again as its quota, so the last third is refused room.

Front and engine take turns here; in an installation they are two processes. So what each takes is
told apart, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from ledger.domain.ids import SubscriberId, TenantId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta
from ledger.following import names_of
from ledger.rest.asked import Asked
from marketplace.api.many_bids import place_together
from marketplace.domain.decisions.warm_up import rehearse
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.policy_events import CohortPlaced, QuotaSet, UnitPlaced
from marketplace.engine import Engine
from tests.access.world import Party, append, follow, founded
from tests.benchmarks.admission import COHORTS, KUEUE_PER_SECOND, QUEUES
from tests.benchmarks.arrivals import START_WITHIN
from tests.benchmarks.bids import ASKED, list_gpus
from tests.benchmarks.figures import Figure

MARKET, BY = "main", Meta(actor="loop:bench")
NOMINAL, BORROWING, ASKED_FOR = 20, 100, 30
TOGETHER = 60
"""Bids that come in at once; the front takes at most 64 in a turn."""
PATH = "/api/v1/bids"


def run() -> Iterator[Figure]:
    """Let every unit ask for more than its quota; count what was granted, and how fast."""
    units = _governed()
    list_gpus(founded("owner"), COHORTS * QUEUES * ASKED_FOR + 64)
    follow()
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")  # tests do without
    rehearse()  # an engine has its kernels at hand when it goes over to them
    store, engine = default_store(), Engine(default_store(), MARKET, round_seconds=86_400)
    engine.run_once(now=datetime.now(UTC))
    asked = [_bid(unit) for _ in range(ASKED_FOR) for unit in units]
    before, front, decided = store.head(), Watch(), Watch()
    for since in range(0, len(asked), TOGETHER):
        with front:
            _place(asked[since : since + TOGETHER])
        with decided:
            engine.run_once(now=datetime.now(UTC))
    page = store.read_all(after=before, limit=len(asked), only=names_of(LeaseGranted))
    admitted = len(page.events)
    assert admitted == COHORTS * QUEUES * NOMINAL, f"{admitted} were granted"
    rate, alone = admitted / (front.seconds + decided.seconds), admitted / decided.seconds
    yield Figure("bids placed under quota", len(asked), "", digits=0)
    yield Figure("  of them admitted: their quota, not a GPU more", admitted, "", digits=0)
    yield Figure(
        "admissions, durable", rate, "/s", KUEUE_PER_SECOND, "Kueue's baseline", "≥ 860 (20×)"
    )
    yield Figure("  by the engine alone", alone, "/s", KUEUE_PER_SECOND, "Kueue's baseline")
    yield Figure("  processor time a bid: front", 1e3 * front.worked / len(asked), "ms", digits=2)
    yield Figure(
        "  processor time a bid: engine", 1e3 * decided.worked / len(asked), "ms", digits=2
    )


class Watch:
    """Adds up seconds, and of them those of this thread on a processor."""

    def __init__(self) -> None:
        self.seconds = self.worked = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun[0]
        self.worked += time.thread_time() - self._begun[1]


def _governed() -> list[Party]:
    """Make cohorts, and units with quotas in them; return one party for each unit."""
    parties, now = [], timezone.now()
    for cohort in range(COHORTS):
        name = f"cohort-{cohort}"
        _govern(CohortPlaced(market=MARKET, cohort=name, parent=None, tenant_id=None, at=now))
        for queue in range(QUEUES):
            party = founded(f"unit-{cohort}-{queue}")
            unit, tenant = (
                SubscriberId(party.ids["subscriber_id"]),
                TenantId(party.ids["tenant_id"]),
            )
            _govern(
                UnitPlaced(market=MARKET, subscriber_id=unit, tenant_id=tenant, cohort=name, at=now)
            )
            _govern(
                QuotaSet(
                    market=MARKET,
                    node=str(unit),
                    gpu_class="H100",
                    nominal=NOMINAL,
                    borrowing=BORROWING,
                    lending=None,
                    at=now,
                )
            )
            parties.append(party)
    return parties


def _govern(event: CohortPlaced | UnitPlaced | QuotaSet) -> None:
    append(f"governance-{MARKET}", event, by=BY)


def _bid(party: Party) -> Asked:
    lasting = timedelta(seconds=int(str(ASKED["duration_seconds"]))) + START_WITHIN
    body = {
        **ASKED,
        "subscriber_id": str(party.ids["subscriber_id"]),
        "deadline": (datetime.now(UTC) + lasting).isoformat(),
    }
    return Asked(party.caller.token, json.dumps(body).encode(), PATH, uuid4())


def _place(asked: Sequence[Asked]) -> None:
    answers = place_together(asked)
    wrong = [each for each in answers if each is None or each.status != 201]
    assert not wrong, f"a bid was answered with {wrong[0]}"
