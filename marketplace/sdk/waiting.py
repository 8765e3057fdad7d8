"""Waiting for a bid to become a lease that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .client import POLL_SECONDS
from .forms import money
from .problems import Problem
from .session import Session

NEXT_SECONDS_MAX = 900.0
"""How long the market is waited for to say what follows a lease that is over."""

LEASE = (
    ("id", "lease"),
    ("state", "state"),
    ("gpu_model", "GPU"),
    ("gpus", "GPUs"),
    ("starts_at", "starts"),
    ("ends_at", "ends"),
    ("price", "price per GPU-hour", money),
    ("burst", "in a cloud"),
)


class BidEnded(Problem):
    """A bid that was waited for ended without a lease."""

    def __init__(self, bid: Mapping[str, Any]) -> None:
        reason = bid.get("ended_because") or bid["state"]
        detail = f"The bid is {bid['state']} and became no lease ({reason})."
        super().__init__(409, {"code": "bid-ended", "detail": detail, "bid_id": bid["id"]})


def wait_for_lease(session: Session, bid_id: str, *, seconds: float) -> dict[str, Any]:
    """Wait until a bid is a lease that runs, and tell how it goes.

    seconds: for all of it. Raises: TimeoutError; BidEnded where the bid ended without a lease.
    """
    told = ""

    def tell(state: dict[str, Any]) -> None:
        nonlocal told
        reason = (state.get("reason") or {}).get("text")
        now = f"{state['state']}: {reason}" if reason else str(state["state"])
        if now != told:
            session.printer.say(now)
            told = now

    ends = time.monotonic() + seconds
    bid = session.client.wait(
        f"bids/{bid_id}", lambda bid: bid["state"] != "open", seconds=seconds, seen=tell
    )
    if bid["lease_id"] is None:
        raise BidEnded(bid)
    session.printer.say(f"Matched: lease {bid['lease_id']}. The host starts the work.")
    lease: dict[str, Any] = session.client.wait(
        f"leases/{bid['lease_id']}",
        lambda lease: lease["state"] not in ("scheduled", "starting"),
        seconds=max(0.0, ends - time.monotonic()),
        seen=tell,
        # The bid is filled a moment before its lease is written.
        absent_at_first=True,
    )
    return lease


def next_of_chain(session: Session, lease: Mapping[str, Any]) -> str | None:
    """Wait until the market asked for the rest of a lease, or said that nothing follows.

    Return the bid that goes on; None: nothing follows. The next bid is placed at the latest when
    the lease is paid.

    Raises: TimeoutError.
    """
    ends = time.monotonic() + NEXT_SECONDS_MAX
    while True:
        bids = list(session.client.all(f"bids/{lease['bid_id']}/chain"))
        by_number = {bid["chain"]["number"]: bid for bid in bids if bid["chain"]}
        this = next((n for n, bid in by_number.items() if bid["id"] == lease["bid_id"]), None)
        if this is None:
            return None
        if this + 1 in by_number:
            return str(by_number[this + 1]["id"])
        if by_number[this]["chain"]["ended_because"]:
            return None
        if time.monotonic() >= ends:
            raise TimeoutError(f"what follows bid {lease['bid_id']}")
        time.sleep(POLL_SECONDS)
