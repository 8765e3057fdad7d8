"""Waiting for a bid to become a lease that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .client import POLL_SECONDS
from .forms import money
from .printing import shown
from .problems import Problem, Unreachable
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


LEFT = (KeyboardInterrupt, TimeoutError, Unreachable)
"""What ends looking on, while what was asked for stands."""


@contextmanager
def told_if_left(session: Session, sentence: str, what: str, command: str) -> Iterator[None]:
    """Say, where the person stops looking on or cannot any more, what stands and how to end it.

    what: the id of what stands. command: shows it.
    """
    try:
        yield
    except LEFT:
        session.announce(sentence, what, command)
        raise


def wait_for_lease(session: Session, bid_id: str, *, seconds: float) -> dict[str, Any]:
    """Wait until a bid is a lease that runs, and tell how it goes.

    seconds: for all of it. Raises: TimeoutError; BidEnded where the bid ended without a lease.
    """
    told = ""

    def tell(state: dict[str, Any]) -> None:
        nonlocal told
        why = (state.get("reason") or {}).get("text")
        if state["state"] == "scheduled":
            why = f"it begins {shown(state['starts_at'])}" if state.get("starts_at") else why
        now = f"{state['state']}: {why}" if why else str(state["state"])
        if now != told:
            session.printer.say(now)
            told = now

    ends = time.monotonic() + seconds
    stands = f"The bid stands: offpeak bids cancel {bid_id} withdraws it."
    with told_if_left(session, stands, bid_id, f"offpeak bids explain {bid_id}"):
        bid = session.client.wait(
            f"bids/{bid_id}", lambda bid: bid["state"] != "open", seconds=seconds, seen=tell
        )
    lease_id = bid["lease_id"]
    if lease_id is None:
        raise BidEnded(bid)
    session.printer.say(f"Matched: lease {lease_id}.")
    stands = f"The lease stands, and its work begins: offpeak leases end {lease_id} ends it."
    with told_if_left(session, stands, lease_id, f"offpeak leases show {lease_id}"):
        lease: dict[str, Any] = session.client.wait(
            f"leases/{lease_id}",
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
    bid_id = lease["bid_id"]
    stands = f"What is left may go on elsewhere: offpeak bids end {bid_id} lets nothing follow."
    with told_if_left(session, stands, bid_id, f"offpeak bids chain {bid_id}"):
        return _next_of_chain(session, bid_id)


def _next_of_chain(session: Session, bid_id: str) -> str | None:
    ends = time.monotonic() + NEXT_SECONDS_MAX
    while True:
        bids = list(session.client.all(f"bids/{bid_id}/chain"))
        by_number = {bid["chain"]["number"]: bid for bid in bids if bid["chain"]}
        this = next((n for n, bid in by_number.items() if bid["id"] == bid_id), None)
        if this is None:
            return None
        if this + 1 in by_number:
            return str(by_number[this + 1]["id"])
        if by_number[this]["chain"]["ended_because"]:
            return None
        if time.monotonic() >= ends:
            raise TimeoutError(f"what follows bid {bid_id}")
        time.sleep(POLL_SECONDS)
