"""The loop that brings work in clouds home where that pays: a pass, called again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from bursting.commands.homing import AskPrice, ask_home, follow_home
from bursting.commands.records import instance_known
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId
from bursting.queries import home_moves_under_way, instances_running
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from ledger.turns import each_alone
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.leases.renewals import MOVES_WITHIN
from marketplace.queries.books import preview

LOOK_AGAIN = timedelta(seconds=20)
"""How long an instance rests whose work stays: checkpoints come once a minute at most."""
HOMECOMING = Meta(actor="loop:burst-homecoming")

log = structlog.get_logger()


def ask_market(store: EventStore, terms: BidTerms, now: datetime) -> Rate | None:
    """Return what local supply asks for a place that begins when `terms` say; see `AskPrice`."""
    quote = preview(store, terms=terms, now=now)
    begins = terms.earliest_start or now
    if quote.price is None or quote.window is None or quote.cuts or quote.gpus != terms.gpus:
        return None
    if quote.window.starts_at > begins + MOVES_WITHIN:
        return None
    return Rate(0, quote.price.currency) if quote.own else quote.price


@dataclass(slots=True)
class Homecoming:
    """Weigh what runs in clouds, and take what is on its way home as far as it goes.

    Holds nothing that matters: what rests, and until when, is forgotten at a restart.
    """

    overflow: Overflow
    ask_price: AskPrice = ask_market
    _rests: dict[InstanceId, datetime] = field(default_factory=dict)

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Make one pass; return how many tries began or ended."""
        moved = each_alone(
            home_moves_under_way(),
            lambda lease_id: follow_home(store, lease_id, by=HOMECOMING, now=now),
            event="burst.home-stuck",
            told=lambda lease_id: {"lease": str(lease_id)},
        )
        running = instances_running()
        self._rests = {key: until for key, until in self._rests.items() if until > now}
        return moved + each_alone(
            [key for key in running if key not in self._rests],
            lambda key: self._ask(store, key, now),
            event="burst.home-stuck",
            told=lambda key: {"instance": str(key)},
        )

    def _ask(self, store: EventStore, instance_id: InstanceId, now: datetime) -> bool:
        self._rests[instance_id] = now + LOOK_AGAIN
        instance = instance_known(store, instance_id)
        try:
            return ask_home(
                store,
                instance,
                overflow=self.overflow,
                ask_price=self.ask_price,
                by=HOMECOMING,
                now=now,
            )
        except Refusal as refusal:
            log.info("burst.home-refused", instance=str(instance_id), code=refusal.code)
            return False
