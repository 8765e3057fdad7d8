"""What overflow does by the clock: passes, called again and again by a runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import structlog

from bursting.clouds.port import CloudProvider, CloudTrouble, CloudUnavailable
from bursting.commands.instances import advance_instance
from bursting.commands.records import instance_known
from bursting.commands.returning import pass_warning_on, warned_by
from bursting.commands.spilling import Overflow, defer_bid, spill_bid
from bursting.domain.budget import BudgetExhausted
from bursting.domain.events import InstanceId
from bursting.domain.spill import (
    AttemptsExhausted,
    CloudTooDear,
    DeadlineOutOfReach,
    NoCloudOffer,
    NoCloudWillDo,
)
from bursting.queries import bids_maybe_due, instances_not_over
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from ledger.following import AWAY
from ledger.turns import each_alone

BATCH = 100
BID_RESTS = timedelta(minutes=1)
"""How long a bid rests here that no cloud serves now; `domain.waits` says when clouds are asked."""
IN_VAIN = (
    NoCloudOffer,
    CloudTooDear,
    BudgetExhausted,
    AttemptsExhausted,
    NoCloudWillDo,
    DeadlineOutOfReach,
)
"""Refusals that whoever placed the bid is told."""
NO_ANSWER = "no-cloud-answers"
LOOK_AGAIN = timedelta(seconds=5)
"""How long an instance rests that did not move."""
LOOK_AGAIN_MAX = timedelta(minutes=1)
"""How long at most one rests that fails; each failure after the first doubles the rest."""
SPILL = Meta(actor="loop:burst-spill")
ADVANCE = Meta(actor="loop:burst-instances")

log = structlog.get_logger()


@dataclass(slots=True)
class Resting:
    """An instance that is left alone until `until`."""

    until: datetime
    failures: int = 0


@dataclass(slots=True)
class Overflowing:
    """The loop of overflow: spill what is due, advance what is rented, heed warnings.

    Holds nothing that matters: what rests, and until when, is forgotten at a restart.
    """

    overflow: Overflow
    _bids: dict[BidId, datetime] = field(default_factory=dict)
    _instances: dict[InstanceId, Resting] = field(default_factory=dict)
    _warnings_at: datetime | None = None

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Make one pass; return how many bids spilled and instances moved."""
        return self._spill(store, now) + self._advance(store, now)

    def _spill(self, store: EventStore, now: datetime) -> int:
        self._bids = {key: until for key, until in self._bids.items() if until > now}
        limit = BATCH + len(self._bids)
        due = bids_maybe_due(rules=self.overflow.rules, now=now, limit=limit)
        return each_alone(
            [bid_id for bid_id in due if bid_id not in self._bids],
            lambda bid_id: self._spill_one(store, bid_id, now),
            event="burst.bid-stuck",
            told=lambda bid_id: {"bid": str(bid_id)},
        )

    def _spill_one(self, store: EventStore, bid_id: BidId, now: datetime) -> int:
        # Whatever becomes of it, it rests: or the oldest hundred would keep all others from
        # their turn. Not where the store or the database is away: that is not the bid's.
        self._bids[bid_id] = now + LOOK_AGAIN
        try:
            spill_bid(store, bid_id=bid_id, overflow=self.overflow, by=SPILL, now=now)
        except IN_VAIN as refusal:
            log.info("burst.not-possible", bid=str(bid_id), code=refusal.code)
            self._defer(store, bid_id, refusal.code, words_of(refusal), now)
        except CloudUnavailable as trouble:
            log.warning("burst.no-cloud-answers", bid=str(bid_id), error=str(trouble))
            self._defer(store, bid_id, NO_ANSWER, "No cloud answers at present.", now)
        except Refusal as refusal:
            log.debug("burst.not-now", bid=str(bid_id), code=refusal.code)
        except AWAY:
            del self._bids[bid_id]
            raise
        else:
            del self._bids[bid_id]
            return 1
        return 0

    def _defer(
        self, store: EventStore, bid_id: BidId, reason: str, words: str, now: datetime
    ) -> None:
        defer_bid(store, bid_id=bid_id, reason=reason, words=words, by=SPILL, now=now)
        # Looked at again soon, in case it is amended; clouds are asked when its pause is over.
        self._bids[bid_id] = now + BID_RESTS

    def _advance(self, store: EventStore, now: datetime) -> int:
        """Take every instance that is not over as far as it goes; return how many moved.

        Decided on each instance's own stream: rows that lag can cause a look too many or too
        late, nothing else.
        """
        instance_ids = instances_not_over()
        known = set(instance_ids)
        self._instances = {key: rest for key, rest in self._instances.items() if key in known}
        self._heed_warnings(store, instance_ids, now)
        return each_alone(
            instance_ids,
            lambda key: self._advance_one(store, key, now),
            event="burst.stuck",
            told=lambda key: {"instance": str(key)},
        )

    def _advance_one(self, store: EventStore, instance_id: InstanceId, now: datetime) -> bool:
        rest = self._instances.get(instance_id)
        if rest is not None and now < rest.until:
            return False
        # One that cannot be moved, for whatever reason of its own, rests, and each time for longer.
        failures = rest.failures if rest is not None else 0
        pause = min(LOOK_AGAIN * 2 ** min(failures, 10), LOOK_AGAIN_MAX)
        self._instances[instance_id] = Resting(now + pause, failures + 1)
        try:
            before = instance_known(store, instance_id).state
            after = advance_instance(
                store, instance_id=instance_id, overflow=self.overflow, by=ADVANCE, now=now
            )
        except (Refusal, CloudTrouble) as trouble:
            log.warning("burst.stuck", instance=str(instance_id), error=repr(trouble))
            return False
        except AWAY:
            self._instances[instance_id] = Resting(now, failures)
            raise
        if after.state == before:
            self._instances[instance_id] = Resting(now + LOOK_AGAIN)
            return False
        del self._instances[instance_id]
        return True

    def _heed_warnings(
        self, store: EventStore, instance_ids: list[InstanceId], now: datetime
    ) -> None:
        if not instance_ids or (self._warnings_at is not None and now < self._warnings_at):
            return
        self._warnings_at = now + LOOK_AGAIN

        def heed(cloud: CloudProvider) -> int:
            try:
                warned = warned_by(store, cloud, instance_ids=instance_ids, now=now)
            except CloudTrouble as trouble:
                log.warning("burst.no-warnings", cloud=cloud.name, error=str(trouble))
                return 0
            return each_alone(
                warned,
                lambda each: pass_warning_on(store, each[0], gone_at=each[1], by=ADVANCE, now=now),
                event="burst.not-warned",
                told=lambda each: {"instance": str(each[0].intent.instance_id)},
            )

        each_alone(
            self.overflow.clouds.values(),
            heed,
            event="burst.no-warnings",
            told=lambda cloud: {"cloud": cloud.name},
        )


def words_of(refusal: Refusal) -> str:
    """Return what a person reads of a refusal, with the figures that belong to it."""
    details = refusal.details
    match refusal:
        case CloudTooDear():
            return f"{refusal} A limit of at least {details['limit_needed']} would do."
        case AttemptsExhausted():
            told = [str(each) for each in cast("list[object]", details["reasons"])]
            return f"{refusal} They ended with: {', '.join(told)}."
        case NoCloudWillDo():
            told = [str(each) for each in cast("list[object]", details["conditions"])]
            return f"No rented machine can meet what the bid asks for: {', '.join(told)}."
        case BudgetExhausted():
            return "The month's budget for rented capacity does not cover a machine for this bid."
        case _:
            return str(refusal)
