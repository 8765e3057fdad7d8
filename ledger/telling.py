"""What people are told of the books: months, and accounts that run low.

Who tells asks `is_news` first: what happened long ago, as after an upgrade, is no news any more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from ledger.commands.notices import give_notice
from ledger.domain.closing_events import PeriodClosed, PeriodReopened, ReopeningAsked
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.notices import To, is_news, to_platform
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of
from ledger.models import AccountRow
from ledger.queries.money import telling_low

Clock = Callable[[], datetime]
LOW_AT_ONCE_MAX = 1_000


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


def tell_of_low_accounts(store: EventStore, *, now: datetime) -> int:
    """Tell of accounts that run low, each once a day; return how many there are.

    Told are the organisation's finance people and operators, and those of the unit whose it is.
    """
    told: Any = telling_low(AccountRow.objects.exclude(tenant_id=None), now=now)
    found: list[AccountRow] = list(
        told.filter(runs_low=True).order_by("account_id")[:LOW_AT_ONCE_MAX]
    )
    for row in found:
        _tell_low(store, row, now=now)
    return len(found)


def _tell_low(store: EventStore, row: AccountRow, *, now: datetime) -> None:
    assert row.tenant_id is not None
    left = Money(row.available_nanos + (row.overdraft_nanos or 0), row.currency)
    give_notice(
        store,
        to=To(
            tenant_id=TenantId(row.tenant_id),
            subscriber_id=None if row.subscriber_id is None else SubscriberId(row.subscriber_id),
            roles=("finance", "operator"),
        ),
        topic="money",
        key=f"low:{row.account_id}:{now:%Y-%m-%d}",
        title=f"{row.title} runs low",
        body=f"{left} can be set aside, which is less than was charged within the last day. Once "
        "nothing is left, bids are refused and leases that cannot be paid end.",
        link=f"/finance/accounts/{row.account_id}",
        facts={
            "account_id": str(row.account_id),
            "available_nanos": str(row.available_nanos),
            "currency": row.currency,
        },
        by=Meta(actor="loop:low-accounts"),
        now=now,
    )
