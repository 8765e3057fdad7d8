"""What is worked out of a lease for its page: its cost, its work, a sale or extension of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger.access import Actor
from ledger.domain.money import Money, Rate
from ledger.eventstore import default_store
from ledger.eventstore.port import load
from marketplace.domain.clearing.extension import EXTENSION_REASONS
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.leases.lease import Lease
from marketplace.models.leases import LeaseRow
from marketplace.queries import bids
from marketplace.queries import leases as queries
from marketplace.queries.quotas import least_runs

MILLI = timedelta(milliseconds=1)
ENDED = ("ending", "closed", "failed")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a lease costs by granted time, which is what is billed.

    so_far: from start to now, or to when its right ended. at_most: if it runs to its end, or to
    the deadline of a reclaim.
    """

    gpu_millis: int
    so_far: Money
    at_most: Money
    passed_ppm: int


def cost_of(row: LeaseRow, now: datetime) -> Cost:
    """Price a lease's granted time so far and in full."""
    right_ends_at = queries.right_ends_at(row)
    until = min(now, right_ends_at)
    started = row.activated_at or row.starts_at
    used = 0 if row.activated_at is None else max(0, (until - started) // MILLI)
    whole = max(0, (right_ends_at - row.starts_at) // MILLI)
    if row.state in ENDED:
        whole = used
    planned = max(1, (row.ends_at - row.starts_at) // MILLI)
    return Cost(
        gpu_millis=used * row.gpus,
        so_far=row.cost_of(started, used),
        at_most=row.cost_of(started if row.state in ENDED else row.starts_at, whole),
        passed_ppm=min(1_000_000, max(0, (until - row.starts_at) // MILLI) * 1_000_000 // planned),
    )


def ended_because(row: LeaseRow) -> str | None:
    """Return why a lease is ending: its row says so only once it is closed."""
    if row.state != "ending":
        return None
    lease = load(default_store(), Lease, row.lease_id)
    assert lease is not None
    return REASONS.get(lease.ending_reason or 0)


def is_resumed(actor: Actor, row: LeaseRow) -> bool:
    """Tell if what is left of the work is asked for again where the lease is cut short."""
    if row.tenant_id != actor.tenant_id:
        return False
    return bids.bid(actor, row.bid_id).resume


def undisturbed_until_of(row: LeaseRow) -> datetime | None:
    """Return until when no other bid interrupts a lease at a price; None: none ever does."""
    if row.state in ENDED or row.stop_at is not None:
        return None
    if row.service_class != "interruptible" or row.tenant_id in row.owner_ids:
        return None
    if row.burst or row.resold_lease_id is not None:
        return None
    runs = least_runs(default_store(), market=row.market)
    return min(row.starts_at + timedelta(seconds=runs.of(row.gpu_model)), row.ends_at)


def paused_from_of(actor: Actor, row: LeaseRow) -> datetime | None:
    """Return from when on the work of a lease may be paused for others; None: it may not be."""
    if row.state in ENDED or row.stop_at is not None or row.tenant_id != actor.tenant_id:
        return None
    bid = bids.bid(actor, row.bid_id)
    if not bid.pausable or row.tenant_id in row.owner_ids or row.resold_lease_id is not None:
        return None
    runs = least_runs(default_store(), market=row.market)
    seconds = max(runs.of(row.gpu_model), runs.firm_seconds - bid.done_seconds)
    since = row.starts_at + timedelta(seconds=seconds)
    return since if since < row.ends_at else None


def work_of(row: LeaseRow, now: datetime) -> dict[str, Any]:
    """Return up to when the work is safe, and what an end by others kept and lost of it."""
    every = row.checkpoint_seconds
    found: dict[str, Any] = {
        "every": None if every is None else timedelta(seconds=every),
        "at_stake": row.activated_at is not None and row.state in ("active", "reclaiming"),
    }
    if row.lost_seconds is not None:
        found["kept"] = timedelta(seconds=row.kept_seconds or 0)
        found["lost"] = timedelta(seconds=row.lost_seconds)
    elif row.activated_at is not None:
        found["at_risk"] = max(
            timedelta(), now - max(row.checkpoint_at or row.activated_at, row.activated_at)
        )
    return found


def extension_of(row: LeaseRow) -> dict[str, Any] | None:
    """Return the last extension asked for, and what stands in its way."""
    if row.extension is None:
        return None
    return {
        "ends_at": datetime.fromisoformat(row.extension["ends_at"]),
        "answer": row.extension["answer"],
        "pausing": row.extension.get("pausing", False),
        "because": EXTENSION_REASONS.get(row.extension["reason"], row.extension["reason"]),
    }


def sale_of(row: LeaseRow, now: datetime) -> dict[str, Any] | None:
    """Return the sale of the rest, and what its owner would pay to take it first."""
    if row.resale is None or row.resale_state == "kept":
        return None
    since, opens_at = (datetime.fromisoformat(row.resale[key]) for key in ("since", "opens_at"))
    found = {"since": since, "opens_at": opens_at, "floor_nanos": row.resale["floor_nanos"]}
    if row.resale_state == "first-refusal":
        gpu_millis = max(0, (row.ends_at - max(since, now)) // MILLI) * row.gpus
        floor = Rate(row.resale["floor_nanos"], row.currency)
        price = row.price_at(now)
        found["price"] = floor.charge(gpu_millis) - price.charge(gpu_millis)
    return found
