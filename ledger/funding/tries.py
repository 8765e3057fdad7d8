"""Calls to the payment service: each tried alone, with growing pauses, and not for ever.

A key that makes a call harmless to repeat is kept by the service for a day. So nothing is tried
longer than that: it is given up, and somebody has to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db.models import QuerySet

from ledger.domain.redaction import redact
from ledger.domain.refusal import Refusal
from ledger.following import AWAY
from ledger.models import PaymentCall
from ledger.payments.port import PaymentsAway, PaymentsRefused

PAUSE_MIN, PAUSE_MAX = timedelta(seconds=5), timedelta(hours=1)
TRIED_FOR_MAX = timedelta(hours=20)
AWAY_IN_A_ROW_MAX = 3
"""So many calls after one another that find the service away: the others wait for the next pass."""
ERROR_CHARS_MAX = 500

log = structlog.get_logger()


class StillOpen(Exception):
    """The service has not decided yet. It tells when it has, and is asked now and then."""


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to ask of the payment service. refused: what to do where it says no.

    tried_for: longer than keys are kept only where the service is asked first if it is done.
    """

    name: str
    act: Callable[[], object]
    refused: Callable[[PaymentsRefused], object]
    tried_for: timedelta = TRIED_FOR_MAX


def pause_after(tries: int) -> timedelta:
    """Return how long to wait after so many tries, the first one included."""
    doubled: timedelta = PAUSE_MIN * (1 << min(tries - 1, 20))
    return min(PAUSE_MAX, doubled)


def carry_out(calls: Iterable[Call], *, now: datetime) -> int:
    """Try all calls that are due; return how many came about.

    Raises: only where the store or the database is away.
    """
    waiting = {row.call: row for row in PaymentCall.objects.all()}
    done = away = 0
    for call in calls:
        row = waiting.get(call.name)
        if row is not None and (row.again_at is None or row.again_at > now):
            continue
        try:
            _try(call)
            away = 0
        except AWAY:
            raise
        except Exception as failure:  # kept with its call: other calls are tried
            again_later(call.name, row, failure, now=now, tried_for=call.tried_for)
            away = away + 1 if isinstance(failure, PaymentsAway) else 0
            if away >= AWAY_IN_A_ROW_MAX:
                break
            continue
        if row is not None:
            row.delete()
        done += 1
    return done


def _try(call: Call) -> None:
    try:
        call.act()
    except PaymentsRefused as refused:
        log.warning("payments.refused", call=call.name, code=refused.code)
        call.refused(refused)


def again_later(
    name: str,
    row: PaymentCall | None,
    failure: Exception,
    *,
    now: datetime,
    tried_for: timedelta = TRIED_FOR_MAX,
) -> None:
    """Note that a call did not come about, and when it is tried again, if at all."""
    row = row or PaymentCall(call=name, tries=0, first_at=now)
    row.tries += 1
    over = now - row.first_at > tried_for
    row.again_at = None if over else now + pause_after(row.tries)
    code = failure.code if isinstance(failure, Refusal) else type(failure).__name__
    row.error = redact(f"{code}: {failure}")[:ERROR_CHARS_MAX]
    row.save()
    if isinstance(failure, StillOpen):
        return
    log.warning("payments.again-later", call=name, error=row.error, given_up=over)


def given_up() -> QuerySet[PaymentCall]:
    """Return the calls that are not tried any more, the oldest first."""
    return PaymentCall.objects.filter(again_at=None).order_by("first_at", "call")
