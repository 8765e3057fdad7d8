"""What people are told: stream notice-<notice id>, one for each notice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId, TenantId, UserId

Topic = Literal[
    "money",
    "budget",
    "invoice",
    "payout",
    "dispute",
    "price",
    "month",
    "reclaim",
    "lease-end",
    "pause",
    "quota",
    "health",
    "maintenance",
    "access",
    "delivery",
]
"""What a notice is about: people choose by it how they are told."""


@dataclass(frozen=True, slots=True)
class NoticeFact:
    """One thing that a notice says, for programs: amounts in nano-units, moments as ISO 8601."""

    name: str
    value: str


class NoticeGiven(Event, name="ledger.notice-given"):
    """People of an organisation are told something, in words.

    subscriber_id: the business unit it concerns, if one. user_ids: who is told, as membership was
    when it was given. link: a path of this market's pages; empty: none. at: when that happened
    which it tells of.
    """

    notice_id: UUID
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    user_ids: tuple[UserId, ...]
    topic: Topic
    title: str
    body: str
    link: str
    facts: tuple[NoticeFact, ...]
    at: datetime
