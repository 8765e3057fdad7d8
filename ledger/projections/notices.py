"""Rows of inboxes: a notice in that of each person who is meant."""

from __future__ import annotations

from uuid import uuid5

from ledger.domain.notice_events import NoticeGiven
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models import InboxRow
from ledger.rows import Rows


def project_notices(recorded: Recorded, rows: Rows) -> None:
    """Put a notice into the inboxes of those who are meant."""
    match recorded.event:
        case NoticeGiven() as given:
            for user_id in given.user_ids:
                rows.add(
                    InboxRow(
                        inbox_id=uuid5(given.notice_id, str(user_id)),
                        notice_id=given.notice_id,
                        position=recorded.position,
                        tenant_id=given.tenant_id,
                        subscriber_id=given.subscriber_id,
                        user_id=user_id,
                        topic=given.topic,
                        title=given.title,
                        body=given.body,
                        link=given.link,
                        facts={fact.name: fact.value for fact in given.facts},
                        at=given.at,
                    )
                )


NOTICES = Projection(
    name="ledger.notices",
    project=project_notices,
    tables=(InboxRow,),
    on=names_of(NoticeGiven),
)
