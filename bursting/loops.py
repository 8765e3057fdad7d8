"""What overflow does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from bursting.clouds.port import CloudTrouble, CloudUnavailable
from bursting.commands.instances import advance_instance
from bursting.commands.records import instance_known
from bursting.commands.returning import heed_warnings
from bursting.commands.spilling import Overflow, spill_bid
from bursting.domain.budget import BudgetExhausted
from bursting.domain.events import InstanceId
from bursting.domain.spill import AttemptsExhausted, CloudTooDear, NoCloudOffer
from bursting.queries import bids_maybe_due, instances_not_over
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta

BATCH = 100
LOOK_AGAIN_AFTER = timedelta(minutes=1)
"""How long a bid rests that no cloud serves now: asking clouds costs requests of a small quota."""
RESTING_MAX = 10_000
SPILL = Meta(actor="loop:burst-spill")
ADVANCE = Meta(actor="loop:burst-instances")

log = structlog.get_logger()


class Overflowing:
    """The loop of overflow: spill what is due, advance what is rented.

    Holds nothing that matters: which bids rest for a minute is forgotten at a restart.
    """

    def __init__(self, overflow: Overflow) -> None:
        self._overflow = overflow
        self._resting: dict[BidId, datetime] = {}

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Make one pass; return how many bids spilled and instances moved."""
        spilled = self._spill(store, now)
        return spilled + advance_instances(store, overflow=self._overflow, now=now)

    def _spill(self, store: EventStore, now: datetime) -> int:
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        spilled = 0
        limit = BATCH + len(self._resting)
        for bid_id in bids_maybe_due(rules=self._overflow.rules, now=now, limit=limit):
            if bid_id in self._resting or spilled == BATCH:
                continue
            try:
                spill_bid(store, bid_id=bid_id, overflow=self._overflow, by=SPILL, now=now)
            except (NoCloudOffer, CloudTooDear, BudgetExhausted, AttemptsExhausted) as refusal:
                log.info("burst.not-possible", bid=str(bid_id), code=refusal.code)
                self._rest(bid_id, now)
            except CloudUnavailable as trouble:
                log.warning("burst.no-cloud-answers", bid=str(bid_id), error=str(trouble))
                self._rest(bid_id, now)
            except Refusal as refusal:
                log.debug("burst.not-now", bid=str(bid_id), code=refusal.code)
            else:
                spilled += 1
        return spilled

    def _rest(self, bid_id: BidId, now: datetime) -> None:
        if len(self._resting) < RESTING_MAX:
            self._resting[bid_id] = now + LOOK_AGAIN_AFTER


def advance_instances(store: EventStore, *, overflow: Overflow, now: datetime) -> int:
    """Take every instance that is not over as far as it goes; return how many moved.

    Decided on each instance's own stream: rows that lag can cause a look too many, nothing else.
    """
    instance_ids = instances_not_over()
    if not instance_ids:
        return 0
    _heed_warnings(store, overflow, instance_ids, now)
    moved = 0
    for instance_id in instance_ids:
        try:
            before = instance_known(store, instance_id).state
            after = advance_instance(
                store, instance_id=instance_id, overflow=overflow, by=ADVANCE, now=now
            )
            moved += after.state != before
        except (Refusal, CloudTrouble) as trouble:
            # One instance that cannot be moved must not hold up the others.
            log.warning("burst.stuck", instance=str(instance_id), error=repr(trouble))
    return moved


def _heed_warnings(
    store: EventStore, overflow: Overflow, instance_ids: Sequence[InstanceId], now: datetime
) -> None:
    for cloud in overflow.clouds.values():
        try:
            heed_warnings(store, cloud, instance_ids=instance_ids, by=ADVANCE, now=now)
        except CloudTrouble as trouble:
            log.warning("burst.no-warnings", cloud=cloud.name, error=str(trouble))
