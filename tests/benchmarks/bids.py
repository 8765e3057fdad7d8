"""Bids through the API: a hold and a bid each, proved, checked, recorded and answered."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator

from tests.access.world import Party, follow, found
from tests.benchmarks.append import pgbench
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.served import ask, together, web

CLIENTS, SECONDS = 4, 8.0

Work = Callable[[http.client.HTTPConnection], bool]


def run() -> Iterator[Figure]:
    """Measure bids of four organisations at once, and the same clients asking for nothing."""
    parties = [found(f"bench{number}") for number in range(CLIENTS)]
    follow()
    bare = pgbench(inserts=2, clients=CLIENTS)
    yield Figure(f"pgbench: two bare INSERTs, {CLIENTS} clients", bare, "/s")
    with web() as port:
        healthy = len(together(port, [_healthz] * CLIENTS, SECONDS / 2)) / (SECONDS / 2)
        yield Figure(f"GET /healthz, {CLIENTS} clients", healthy, "/s")
        times = together(port, [_bidding(party) for party in parties], SECONDS)
    rate = len(times) / SECONDS
    yield Figure("bids through the API", rate, "/s", healthy, "GET /healthz")
    yield Figure("  the same, beside two bare INSERTs", rate, "/s", bare, "pgbench")
    yield Figure("  p50", percentile(times, 0.5) * 1e3, "ms")
    yield Figure("  p99", percentile(times, 0.99) * 1e3, "ms")


def _healthz(client: http.client.HTTPConnection) -> bool:
    return ask(client, "GET", "/healthz") == 200


def _bidding(party: Party) -> Work:
    body = json.dumps(
        {
            "subscriber_id": str(party.ids["subscriber_id"]),
            "gpus": 1,
            "duration_seconds": 3_600,
            "limit": "0.01",
            "service_class": "on-demand",
            "workload": {"kind": "inference-7b"},
        }
    ).encode()

    def bid(client: http.client.HTTPConnection) -> bool:
        status = ask(client, "POST", "/api/v1/bids", body, party.caller.token)
        assert status == 201, f"a bid was answered with {status}"
        return True

    return bid
