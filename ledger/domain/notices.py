"""What people are told, and who is meant.

A notice says something once: its id follows from who is meant, its topic and its key, so whoever
gives it twice has given it once. How each person hears of it (inbox, e-mail, not at all) is their
own setting and no fact of the market.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, get_args
from uuid import UUID, uuid5

from ledger.domain.events import Role
from ledger.domain.holds import need_text
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.notice_events import NoticeFact, NoticeGiven, Topic
from ledger.domain.parties import PLATFORM_ID, Tenant
from ledger.domain.refusal import Invalid

TITLE_LENGTH_MAX = 200
BODY_LENGTH_MAX = 4_000
LINK_LENGTH_MAX = 400
FACTS_MAX = 40
FACT_LENGTH_MAX = 400
NEWS_FOR = timedelta(days=1)
RECIPIENTS_MAX = 1_000
"""A notice reaches so many people at most, those admitted first; webhooks hear of it anyway."""

_NOTICES = UUID("6f66660a-7065-5b6b-8074-6e6f74696365")


class TopicUnknown(Invalid):
    """A notice is about one of the topics in `known`."""


class NoticeUnreadable(Invalid):
    """A notice has a title of up to 200 characters, a body, and a link within this market's pages.

    A link begins with one `/`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTerms:
    """What a topic is about. roles: who of an organisation is told where nothing else is said.
    by_mail: also by e-mail, unless the person wants it otherwise."""

    title: str
    about: str
    roles: tuple[Role, ...]
    by_mail: bool = False


TOPICS: Mapping[Topic, TopicTerms] = {
    "money": TopicTerms(
        title="Money",
        about="Accounts that run low, top-ups, refunds",
        roles=("finance", "operator"),
        by_mail=True,
    ),
    "budget": TopicTerms(
        title="Budgets",
        about="Budgets that are nearly or wholly used",
        roles=("finance", "operator"),
        by_mail=True,
    ),
    "invoice": TopicTerms(
        title="Invoices",
        about="Invoices, statements and credit notes",
        roles=("finance",),
        by_mail=True,
    ),
    "payout": TopicTerms(
        title="Payouts",
        about="What an owner is paid, or is not yet",
        roles=("finance", "owner"),
        by_mail=True,
    ),
    "dispute": TopicTerms(
        title="Disputes",
        about="Metering and payments that somebody contests",
        roles=("finance", "operator"),
        by_mail=True,
    ),
    "price": TopicTerms(
        title="Prices",
        about="Price changes of running leases that want an answer",
        roles=("operator",),
        by_mail=True,
    ),
    "month": TopicTerms(
        title="Months",
        about="Months that were closed or opened again",
        roles=("finance", "operator"),
    ),
    "reclaim": TopicTerms(
        title="Reclaims",
        about="GPUs that an owner takes back",
        roles=("operator",),
        by_mail=True,
    ),
    "lease-end": TopicTerms(
        title="Ends of leases",
        about="Leases that ended, and why",
        roles=("operator",),
    ),
    "pause": TopicTerms(
        title="Pauses",
        about="Work that was paused or goes on",
        roles=("operator",),
        by_mail=True,
    ),
    "quota": TopicTerms(
        title="Quotas",
        about="Requests for more quota, and what was decided",
        roles=("operator",),
    ),
    "health": TopicTerms(
        title="Health of hosts",
        about="Hosts that are silent, GPUs that are withheld",
        roles=("owner",),
        by_mail=True,
    ),
    "maintenance": TopicTerms(
        title="Maintenance",
        about="Planned work on hosts that meets leases",
        roles=("operator",),
    ),
    "access": TopicTerms(
        title="Access",
        about="Who may act for the organisation",
        roles=("operator",),
    ),
    "delivery": TopicTerms(
        title="Deliveries",
        about="Webhooks that fail, exports that were not delivered",
        roles=("operator",),
        by_mail=True,
    ),
}
assert set(TOPICS) == set(get_args(Topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class To:
    """Who of an organisation is meant: everybody who is named in one of these ways.

    user_ids: these members. subscriber_id: all members of that business unit. roles: members with
    one of these roles; with none of the three, those with the roles of the topic.
    """

    tenant_id: TenantId
    user_ids: tuple[UserId, ...] = ()
    subscriber_id: SubscriberId | None = None
    roles: tuple[Role, ...] = ()


def to_platform(*roles: Role) -> To:
    """Return the platform's own people in these roles; without: in those of the topic."""
    return To(tenant_id=PLATFORM_ID, roles=roles)


def is_news(happened_at: datetime, clock: Callable[[], datetime] | None) -> bool:
    """Tell if people are told now of what happened then: not of what is a day old.

    So an upgrade or a restored backup tells nobody of the past. clock: None: nobody is told of
    anything, as where a past week is played.
    """
    return clock is not None and happened_at > clock() - NEWS_FOR


def notice_id_of(to: To, topic: Topic, key: str) -> UUID:
    """Return the id of a notice: always the same for the same people, topic and key."""
    meant = ",".join(str(user_id) for user_id in sorted(to.user_ids))
    roles = ",".join(sorted(to.roles))
    whose = f"{to.tenant_id}:{to.subscriber_id or ''}:{meant}:{roles}"
    return uuid5(_NOTICES, f"{whose}:{topic}:{key}")


def recipients(tenant: Tenant, to: To, topic: Topic) -> tuple[UserId, ...]:
    """Return which members of an organisation are meant; its operators where nobody is left."""
    named_otherwise = to.user_ids or to.subscriber_id
    roles = set(to.roles or (() if named_otherwise else TOPICS[topic].roles))
    found = [
        member.user_id
        for member in tenant.members.values()
        if member.user_id in to.user_ids
        or (to.subscriber_id is not None and member.subscriber_id == to.subscriber_id)
        or roles.intersection(member.roles)
    ]
    if not found:
        operators = (each for each in tenant.members.values() if "operator" in each.roles)
        found = [member.user_id for member in operators]
    return tuple(found[:RECIPIENTS_MAX])


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice, as its stream tells it."""

    STREAM: ClassVar[str] = "notice"

    given: NoticeGiven

    @classmethod
    def evolve(cls, state: Notice | None, event: NoticeGiven, /) -> Notice:
        """Return the notice after `event`."""
        return cls(event)


def give(
    tenant: Tenant,
    *,
    to: To,
    topic: Topic,
    key: str,
    title: str,
    body: str,
    link: str,
    facts: Mapping[str, str],
    now: datetime,
) -> NoticeGiven:
    """Return the notice for those who are meant.

    Raises: TopicUnknown, NoticeUnreadable, TextUnreadable.
    """
    if topic not in TOPICS:
        raise TopicUnknown(known=sorted(TOPICS))
    within = link == "" or (link.startswith("/") and not link.startswith(("//", "/\\")))
    if not title.strip() or not body.strip() or not within or len(facts) > FACTS_MAX:
        raise NoticeUnreadable()
    need_text(title, length_max=TITLE_LENGTH_MAX)
    need_text(body.replace("\n", " "), length_max=BODY_LENGTH_MAX)
    need_text(link, length_max=LINK_LENGTH_MAX)
    need_text(*facts.keys(), *facts.values(), length_max=FACT_LENGTH_MAX)
    return NoticeGiven(
        notice_id=notice_id_of(to, topic, key),
        tenant_id=to.tenant_id,
        subscriber_id=to.subscriber_id,
        user_ids=recipients(tenant, to, topic),
        topic=topic,
        title=title.strip(),
        body=body.strip(),
        link=link,
        facts=tuple(NoticeFact(name, value) for name, value in facts.items()),
        at=now,
    )
