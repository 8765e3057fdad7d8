"""What became of the leases of a stretch as it was: what people did is repeated by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ledger.domain.ids import BidId, LeaseId, TenantId
from ledger.domain.span import Window
from ledger.eventstore.port import Recorded
from marketplace.domain.facts.close_reasons import INTERRUPTED
from marketplace.domain.facts.events import (
    ExtensionGranted,
    ExtensionRequested,
    LeaseClosed,
    LeaseGranted,
)

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Was:
    """What became of the leases that were granted in the stretch.

    used: of those left early. given_back: when, of those left before they began. asked_from: when a
    lease would have ended as more was asked for.
    """

    bids: dict[LeaseId, BidId]
    ends: dict[LeaseId, datetime]
    used: dict[BidId, timedelta]
    gpus: dict[tuple[LeaseId, TenantId], set[str]]
    asked_from: dict[tuple[LeaseId, datetime], datetime]
    given_back: dict[BidId, datetime] = field(default_factory=dict)

    def left(self, bid_id: BidId, window: Window) -> datetime | None:
        """Return when a lease of a bid over a window is left; None: not before its end.

        After the same time of use; what was given back before it began, at the same moment.
        """
        if bid_id in self.given_back:
            return min(self.given_back[bid_id], window.ends_at)
        used = self.used.get(bid_id)
        return window.starts_at + used if used is not None and used < window.length else None


def what_was(recorded: Sequence[Recorded], stream: str) -> Was:
    """Return it, of what was recorded in a stretch; stream: the market's own."""
    was = Was({}, {}, {}, defaultdict(set), {})
    starts: dict[LeaseId, datetime] = {}
    for each in recorded:
        match each.event:
            case LeaseGranted() as granted if each.stream == stream:
                lease_id = granted.lease_id
                was.bids[lease_id] = granted.bid_id
                starts[lease_id] = granted.window.starts_at
                was.ends[lease_id] = granted.window.ends_at
                for share in granted.shares:
                    was.gpus[lease_id, share.owner_id].update(share.gpu_uuids)
            case ExtensionRequested() as asked if asked.lease_id in was.bids:
                was.asked_from[asked.lease_id, asked.ends_at] = was.ends[asked.lease_id]
            case ExtensionGranted() as extended if extended.lease_id in was.bids:
                was.ends[extended.lease_id] = extended.ends_at
            case LeaseClosed() as closed if closed.lease_id in was.bids:
                left_early = closed.at + SECOND < was.ends[closed.lease_id]
                if left_early and closed.reason // 100 != 2 and closed.reason != INTERRUPTED:
                    bid_id, used = was.bids[closed.lease_id], closed.at - starts[closed.lease_id]
                    if used < timedelta(0):
                        was.given_back[bid_id] = closed.at
                    else:
                        was.used[bid_id] = used
            case _:
                pass
    return was
