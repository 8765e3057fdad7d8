"""Bids that arrive at a steady rate whether or not the market keeps up, and a subscriber beside.

Each bid has its moment; a client that is still waiting for an answer does not put the next one off,
another takes it, and time counts from that moment on (no coordinated omission).
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID, uuid4

from django.db import connection

from ledger.eventstore import default_store
from ledger.following import names_of
from marketplace.domain.facts.events import LeaseGranted, LeaseScheduled
from tests.access.world import Party
from tests.benchmarks.served import ask, asked_for

CLIENTS = 16
PROBE_EVERY = 20
"""One bid in so many is looked for in the rows that the API reads."""
START_WITHIN = timedelta(minutes=5)
LOOK_SECONDS = 0.02
DRAIN_SECONDS = 30.0


@dataclass
class Arrived:
    """What became of one bid, by the clock of this process."""

    due: float
    sent: float = 0.0
    answered: float = 0.0
    granted: float = 0.0
    scheduled: float = 0.0
    shown: float = 0.0


@dataclass
class Watch:
    """Hears grants and leases from the store, as any subscriber would."""

    bids: dict[UUID, Arrived] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    listening: threading.Event = field(default_factory=threading.Event)

    def hear(self) -> None:
        """Note when each event could be read, until `stop` is set."""
        store = default_store()
        kinds = names_of(LeaseGranted, LeaseScheduled)
        for heard in store.subscribe(after=store.head(), only=kinds, stop=self.stop):
            self.listening.set()
            event = getattr(heard, "event", None)
            if isinstance(event, LeaseGranted | LeaseScheduled):
                bid = self.bids.get(event.bid_id)
                if bid is None:
                    continue
                now = time.perf_counter()
                if isinstance(event, LeaseGranted):
                    bid.granted = bid.granted or now
                else:
                    bid.scheduled = bid.scheduled or now
        connection.close()

    def look(self) -> None:
        """Note when a few of the bids' leases are in the rows that the API reads."""
        wanted = dict(list(self.bids.items())[::PROBE_EVERY])
        while wanted and not self.stop.is_set():
            asked = [bid_id for bid_id, bid in wanted.items() if bid.scheduled]
            if asked:
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT bid_id FROM marketplace_leaserow WHERE bid_id = ANY(%s)", [asked]
                    )
                    for (bid_id,) in cursor.fetchall():
                        wanted.pop(bid_id).shown = time.perf_counter()
            self.stop.wait(LOOK_SECONDS)
        connection.close()


@contextmanager
def watched(bids: dict[UUID, Arrived]) -> Iterator[Watch]:
    """Listen while the block runs."""
    watch = Watch(bids)
    threads = [threading.Thread(target=work) for work in (watch.hear, watch.look)]
    for thread in threads:
        thread.start()
    assert watch.listening.wait(10.0)
    try:
        yield watch
    finally:
        watch.stop.set()
        for thread in threads:
            thread.join()


def arriving(
    port: int,
    parties: Sequence[Party],
    *,
    per_second: float,
    seconds: float,
    body: dict[str, object],
) -> list[Arrived]:
    """Send bids at a steady rate; return them once all are granted and shown, or it took too long.

    They want to start within `START_WITHIN`: those of the instant lane that cannot wait.

    Raises: AssertionError where a bid is not answered with 201.
    """
    lasting = timedelta(seconds=int(str(body["duration_seconds"]))) + START_WITHIN
    started = time.perf_counter() + 0.5
    moments = [started + number / per_second for number in range(int(per_second * seconds))]
    bids = {uuid4(): Arrived(moment) for moment in moments}
    queue, turn, lock = list(bids.items()), count(), threading.Lock()
    wrong: list[str] = []

    def client() -> None:
        connected = http.client.HTTPConnection("127.0.0.1", port)
        ask(connected, "GET", "/healthz")
        while not wrong:
            with lock:
                number = next(turn)
            if number >= len(queue):
                break
            bid_id, bid = queue[number]
            party = parties[number % len(parties)]
            asked = {
                **body,
                "bid_id": str(bid_id),
                "subscriber_id": str(party.ids["subscriber_id"]),
                "deadline": (datetime.now(UTC) + lasting).isoformat(),
            }
            sent = json.dumps(asked).encode()
            time.sleep(max(0.0, bid.due - time.perf_counter()))
            bid.sent = time.perf_counter()
            status, answer = asked_for(connected, "POST", "/api/v1/bids", sent, party.caller.token)
            bid.answered = time.perf_counter()
            if status != 201:
                wrong.append(f"{status} {answer[:300]!r}")
        connected.close()

    with watched(bids):
        clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        assert not wrong, f"a bid was answered with {wrong[0]}"
        until = time.perf_counter() + DRAIN_SECONDS
        probes = list(bids.values())[::PROBE_EVERY]
        while time.perf_counter() < until and not (
            all(bid.scheduled for bid in bids.values()) and all(bid.shown for bid in probes)
        ):
            time.sleep(0.05)
    return list(bids.values())
