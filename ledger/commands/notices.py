"""Telling people something: one function, for every app."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ledger.domain.notice_events import NoticeGiven, Topic
from ledger.domain.notices import Notice, To, give, notice_id_of
from ledger.domain.parties import Tenant, TenantUnknown
from ledger.eventstore.port import EventStore, Meta, Position, load, record


def give_notice(
    store: EventStore,
    *,
    to: To,
    topic: Topic,
    key: str,
    title: str,
    body: str,
    link: str = "",
    facts: Mapping[str, str] | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Tell people of an organisation something, once for each key.

    key: what makes it once among notices of this topic to the same people, such as
    `low:<account>:<month>`. title: one line. body: plain words, paragraphs apart by an empty line.
    link: the page that it leads to, from `/` on. facts: the same for programs, by name. now: when
    that happened which it tells of.

    Raises: TenantUnknown, TopicUnknown, NoticeUnreadable, TextUnreadable.
    """

    def decide(notice: Notice | None) -> list[NoticeGiven]:
        if notice is not None:
            return []
        tenant = load(store, Tenant, to.tenant_id)
        if tenant is None:
            raise TenantUnknown(tenant_id=to.tenant_id)
        given = give(
            tenant,
            to=to,
            topic=topic,
            key=key,
            title=title,
            body=body,
            link=link,
            facts=facts or {},
            now=now,
        )
        return [given]

    return record(store, Notice, notice_id_of(to, topic, key), decide, by=by)
