"""What a person makes of their inbox: what they read, and how they want to be told.

No facts of the market, so no events: rows that requests write, and that a rebuild leaves alone.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid5

from ledger import queries
from ledger.access import Actor
from ledger.domain.notice_events import Topic
from ledger.domain.notices import TOPICS, TopicUnknown
from ledger.models import NoticeRead, NoticeWish
from ledger.queries.notices import inbox

MARKED_AT_ONCE_MAX = 5_000


def mark_read(actor: Actor, notice_id: UUID, *, now: datetime) -> None:
    """Note that the actor read a notice; reading it again changes nothing.

    Raises: PersonNeeded, NoticeUnknown.
    """
    user_id = actor.need_person()
    row = queries.notice(actor, notice_id)
    _note([row.inbox_id], user_id, now=now)


def mark_all_read(actor: Actor, *, topic: str = "", now: datetime) -> int:
    """Note that the actor read all of their inbox, or all of a topic; return how many were new.

    Raises: PersonNeeded.
    """
    user_id = actor.need_person()
    unread = inbox(actor, topic=topic, unread=True).values_list("inbox_id", flat=True)
    found = list(unread[:MARKED_AT_ONCE_MAX])
    _note(found, user_id, now=now)
    return len(found)


def _note(inbox_ids: list[UUID], user_id: UUID, *, now: datetime) -> None:
    fresh = [NoticeRead(inbox_id=each, user_id=user_id, read_at=now) for each in inbox_ids]
    NoticeRead.objects.bulk_create(fresh, ignore_conflicts=True)


def wish(
    actor: Actor,
    topic: Topic,
    *,
    in_inbox: bool,
    by_mail: bool,
    daily: bool = False,
    now: datetime,
) -> None:
    """Set how the actor is told of a topic from now on. daily: its mail comes once a day.

    Raises: PersonNeeded, TopicUnknown.
    """
    user_id = actor.need_person()
    if topic not in TOPICS:
        raise TopicUnknown(known=sorted(TOPICS))
    NoticeWish.objects.update_or_create(
        wish_id=uuid5(user_id, topic),
        defaults={
            "user_id": user_id,
            "topic": topic,
            "in_inbox": in_inbox,
            "by_mail": by_mail,
            "daily": by_mail and daily,
            "changed_at": now,
        },
    )
