"""Who is told of what, and which ways out notices have in this installation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import ledger.connect.telling
import ledger.funding.telling
import ledger.telling
import listings.telling
import marketplace.price_telling
import marketplace.telling
from config.env import Env
from config.processes.loops import Loop, wake
from ledger.delivering import Delivering
from ledger.eventstore.port import EventStore
from ledger.following import Policy
from ledger.senders.mail import MailSender
from ledger.senders.port import Sender
from ledger.senders.webhooks import WebhookSender

GATHER_SECONDS = 0.25


def _deliveries(env: Env) -> Loop:
    """Return the loop that carries notices out, by e-mail and to webhooks."""
    known: dict[EventStore, Delivering] = {}

    def deliver(store: EventStore, now: datetime) -> int:
        if store not in known:
            # Made late: its threads would not outlive the fork of the loop's process.
            private = env.webhooks == "private"
            senders: dict[str, Sender] = {
                "mail": MailSender(),
                "webhook": WebhookSender(clock=lambda: datetime.now(UTC), private=private),
            }
            known[store] = Delivering(senders, wake=wake)
        return known[store].run_once(store, now=now)

    return Loop("deliveries", 5.0, deliver, on_events=True, gather_seconds=GATHER_SECONDS)


def notice_loops(env: Env) -> tuple[Loop, ...]:
    """Return the loops that tell people of things by the clock, and carry notices out."""
    return (_deliveries(env),)


def telling(clock: Callable[[], datetime] | None) -> tuple[Policy, ...]:
    """Return what tells people that something happened. clock: None: nobody is told."""
    return (
        *ledger.telling.policies(clock=clock),
        *ledger.funding.telling.policies(clock=clock),
        *ledger.connect.telling.policies(clock=clock),
        *listings.telling.policies(clock=clock),
        *marketplace.telling.policies(clock=clock),
        *marketplace.price_telling.policies(clock=clock),
    )
