"""What people are told of the books: months.

Who tells asks `is_news` first: what happened long ago, as after an upgrade, is no news any more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ledger.commands.notices import give_notice
from ledger.domain.closing_events import PeriodClosed, PeriodReopened, ReopeningAsked
from ledger.domain.notices import is_news, to_platform
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of

Clock = Callable[[], datetime]


def tell_of_months(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell the platform's finance people that a month was closed, opened again, or is to be."""
    event = recorded.event
    assert isinstance(event, PeriodClosed | PeriodReopened | ReopeningAsked)
    if not is_news(event.at, clock):
        return
    match event:
        case PeriodClosed():
            title = f"{event.period} is closed"
            body = "Nothing counts in it any more. Its exports are being written and then frozen."
        case ReopeningAsked():
            title = f"Somebody asks to open {event.period} again"
            body = f"The reason: {event.reason}\n\nSomebody else has to approve or decline it."
        case PeriodReopened():
            title = f"{event.period} is open again"
            body = f"Two people opened it. The reason: {event.reason}"
    give_notice(
        store,
        to=to_platform(),
        topic="month",
        key=str(recorded.id),
        title=title,
        body=body,
        link=f"/finance/months/{event.period}",
        facts={"period": event.period, "event": event.name},
        by=Meta.because(recorded, policy="tell-of-months"),
        now=event.at,
    )


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells people of the books. clock: None: nobody is told."""
    return (
        Policy(
            name="ledger.tell-of-months",
            react=partial(tell_of_months, clock=clock),
            on=names_of(PeriodClosed, PeriodReopened, ReopeningAsked),
        ),
    )
