"""A person's inbox: what they were told, what they have not read, how they want to be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db.models import DateTimeField, Exists, OuterRef, QuerySet, Subquery

from ledger.access import Actor, visible
from ledger.domain.notice_events import Topic
from ledger.domain.notices import TOPICS
from ledger.domain.refusal import Unknown
from ledger.models import InboxRow, NoticeRead, NoticeWish


class NoticeUnknown(Unknown):
    """There is no such notice in your inbox."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a person is told of a topic. daily: its mail is gathered, and comes once a day."""

    in_inbox: bool
    by_mail: bool
    daily: bool = False


def wishes(user_id: UUID) -> dict[Topic, Wish]:
    """Return how a person is told of each topic."""
    return wishes_of([user_id])[user_id]


def wishes_of(user_ids: Iterable[UUID]) -> dict[UUID, dict[Topic, Wish]]:
    """Return how each of these persons is told of each topic."""
    asked = list(user_ids)
    usual = {topic: Wish(in_inbox=True, by_mail=terms.by_mail) for topic, terms in TOPICS.items()}
    found = {user_id: dict(usual) for user_id in asked}
    for row in NoticeWish.objects.filter(user_id__in=asked):
        for topic in TOPICS:
            if topic == row.topic:
                found[row.user_id][topic] = Wish(
                    in_inbox=row.in_inbox, by_mail=row.by_mail, daily=row.daily
                )
    return found


def inbox(actor: Actor, *, topic: str = "", unread: bool = False) -> QuerySet[InboxRow]:
    """Return what is in the actor's inbox, the newest first, but for topics they do not want there.

    Each row says in `read_at` when they read it; None: not yet.
    """
    rows = _mine(actor)
    if topic:
        rows = rows.filter(topic=topic)
    seen = NoticeRead.objects.filter(inbox_id=OuterRef("inbox_id"))
    if unread:
        rows = rows.filter(~Exists(seen))
    told = Subquery(seen.values("read_at")[:1], output_field=DateTimeField(null=True))
    found: QuerySet[InboxRow] = cast(Any, rows).annotate(read_at=told)
    return found.order_by("-position", "inbox_id")


def unread_count(actor: Actor, *, at_most: int = 100) -> int:
    """Return how many notices the actor has not read; no more than `at_most` are counted."""
    return len(inbox(actor, unread=True).values_list("inbox_id", flat=True)[:at_most])


def notice(actor: Actor, notice_id: UUID) -> InboxRow:
    """Return one notice of the actor's inbox.

    Raises: NoticeUnknown.
    """
    found = _mine(actor).filter(notice_id=notice_id).first()
    if found is None:
        raise NoticeUnknown(notice_id=notice_id)
    return found


def _mine(actor: Actor) -> QuerySet[InboxRow]:
    user_id = actor.need_person()
    rows = visible(actor, InboxRow).filter(tenant_id=actor.tenant_id, user_id=user_id)
    unwanted = [topic for topic, wish in wishes(user_id).items() if not wish.in_inbox]
    return rows.exclude(topic__in=unwanted) if unwanted else rows


def read_moments(inbox_ids: Iterable[UUID]) -> Mapping[UUID, datetime]:
    """Return when these notices were read; those that were not are not in it."""
    rows = NoticeRead.objects.filter(inbox_id__in=list(inbox_ids))
    return {row.inbox_id: row.read_at for row in rows}
