"""`offpeak leases show`: where a host did not start the work, what its agent says of it."""

from __future__ import annotations

from tests.marketplace.cli.pretending import offpeak, pretending

LEASE = "0ff9ea40-0000-4000-8000-000000000001"


def test_what_kept_a_host_from_starting_the_work_is_told() -> None:
    never = {
        "number": 1,
        "host_id": "0ff9ea40-0000-4000-8000-000000000002",
        "started_at": None,
        "ended_at": "2026-11-30T14:15:25Z",
        "exit_code": None,
        "reason": "bwrap: no such folder\x1b[2J",
    }
    ran = {**never, "started_at": "2026-11-30T14:15:20Z", "reason": "it ended"}

    with pretending() as market:
        market.answers[f"GET leases/{LEASE}"] = 200, {"id": LEASE, "attempts": [never, ran]}
        done = offpeak(market, "leases", "show", LEASE)

    assert done.returncode == 0
    assert "did not start the work: bwrap: no such folder\\x1b[2J" in done.stderr
    assert "it ended" not in done.stderr
