"""Two engines of one market at once, on the real store, in threads of their own."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection

from ledger.eventstore.postgres import PostgresStore
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market

PASSES = 25
JOIN_SECONDS = 60

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]


def test_two_engines_at_once_never_grant_one_gpu_twice() -> None:
    market = Market(PostgresStore())
    for word in "abcd":
        market.offer(word, gpus=4, windows=[(market.now, market.now + timedelta(hours=4))])
    failures: list[BaseException] = []
    start = threading.Barrier(3)

    def engine() -> None:
        try:
            mine = Market(PostgresStore()).engine
            start.wait(JOIN_SECONDS)
            for _ in range(PASSES):
                mine.run_once(now=market.now)
        except BaseException as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=engine) for _ in range(2)]
    for thread in threads:
        thread.start()
    start.wait(JOIN_SECONDS)
    for number in range(40):
        market.bid(str(number), gpus=1 + number % 4, hours=2, at=2 + number % 5)
    for thread in threads:
        thread.join(JOIN_SECONDS)
    market.run()

    assert not failures
    audit(market.events())
    assert sum(len(s.gpu_uuids) for g in market.grants().values() for s in g.shares) == 32
