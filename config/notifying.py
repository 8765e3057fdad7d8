"""The loop that carries notices out: which senders this installation has."""

from __future__ import annotations

from datetime import UTC, datetime

from config.env import Env
from config.processes.loops import Loop, wake
from ledger.delivering import Delivering
from ledger.eventstore.port import EventStore
from ledger.senders.mail import MailSender
from ledger.senders.port import Sender
from ledger.senders.webhooks import WebhookSender

GATHER_SECONDS = 0.25


def deliveries(env: Env) -> Loop:
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
