"""Quota policies as facts, put into a book."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from ledger.domain.event import Event
from marketplace.domain.book.book import Book
from marketplace.domain.facts.policy_events import (
    LimitScope,
    LimitSet,
    QuotaOverridden,
    QuotaSet,
    UseAllowed,
    UseKind,
)
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET

HOUR = timedelta(hours=1)


def quota(
    node: str, nominal: int | None, *, borrowing: int | None = None, lending: int | None = None
) -> Event:
    return QuotaSet(
        market=MARKET,
        node=node,
        gpu_class="H100",
        nominal=nominal,
        borrowing=borrowing,
        lending=lending,
        at=NOON,
    )


def override(node: str, nominal: int, since: float) -> Event:
    """Set a quota for a quarter of an hour, some hours from now."""
    starts_at = NOON + since * HOUR
    return QuotaOverridden(
        market=MARKET,
        override_id=UUID(int=3),
        node=node,
        gpu_class="H100",
        nominal=nominal,
        borrowing=0,
        lending=None,
        starts_at=starts_at,
        ends_at=starts_at + HOUR / 4,
        request_id=None,
        at=NOON,
    )


def limit(scope: LimitScope, subject: UUID | None = None, **figures: object) -> Event:
    terms: dict[str, object] = dict.fromkeys(("gpus", "memory_mib", "gpu_hours", "money"))
    return LimitSet(
        market=MARKET,
        scope=scope,
        subject=subject,
        tenant_id=None,
        period="day",
        at=NOON,
        **(terms | figures),  # type: ignore[arg-type]  # as named
    )


def use(what: UseKind, who: str | None, *, allowed: bool, gpu_class: str = "H100") -> Event:
    return UseAllowed(
        market=MARKET, who=who, gpu_class=gpu_class, what=what, allowed=allowed, at=NOON
    )


def put(book: Book, policies: Event | tuple[Event, ...]) -> None:
    for policy in policies if isinstance(policies, tuple) else (policies,):
        book.apply(policy, 1_000)
