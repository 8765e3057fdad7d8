"""Which months a page of money is asked for: one, or from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest

from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.periods import Period, PeriodUnreadable, read_period

MONTHS_OFFERED = 24


@dataclass(frozen=True, slots=True)
class Span:
    """Some months one after the other. first, last: both among them."""

    first: Period
    last: Period

    def __str__(self) -> str:
        return str(self.last) if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def asked(self) -> dict[str, str]:
        """Return what an address says to ask for these months."""
        return {"since": str(self.first), "period": str(self.last)}


def span_of(request: HttpRequest, now: datetime) -> Span:
    """Return the months that were asked for: `period` alone is one; none is the month of now."""
    last = _read(request.GET.get("period", "")) or Period.of(now)
    first = _read(request.GET.get("since", "")) or last
    return Span(min(first, last), last)


def _read(text: str) -> Period | None:
    try:
        return read_period(text)
    except PeriodUnreadable:
        return None


def months_offered(now: datetime, span: Span) -> Sequence[Period]:
    """Return the months to choose from, the newest first; those that are shown are among them."""
    newest = Period.of(now)
    count = newest.year * 12 + newest.month - 1
    last = [count - back for back in range(MONTHS_OFFERED)]
    found = {Period(each // 12, each % 12 + 1) for each in last}
    return sorted(found | {span.first, span.last}, reverse=True)


def need_money(request: HttpRequest) -> Actor:
    """Return who looks at money. Raises: RoleMissing."""
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    return actor
