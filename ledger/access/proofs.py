"""From a proof to an actor: a bearer token, or a signed-in person and the tenant they act for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, cast
from uuid import UUID

from django.db import connection

from ledger.access.actors import Actor
from ledger.access.second_factor import SecondFactorMissing, lacking
from ledger.domain.events import Role
from ledger.domain.ids import HostId, SubscriberId, TenantId, TokenId, UserId
from ledger.domain.refusal import Refusal, Unauthenticated
from ledger.domain.tokens import Written, read
from ledger.models import MemberRow
from ledger.prepared import ask_for_all

TENANT_CHOSEN = "tenant_id"
"""Key of the session under which a person's choice of tenant is kept."""

USE_WRITTEN_EVERY = timedelta(minutes=1)

# Every request asks this, so it is one query, and a plain one: the two rows through the ORM
# would cost more than the rest of the proof.
_HOLDERS = """
SELECT t.sha256, t.token_id, t.tenant_id, t.user_id, t.host_id, t.title, t.scopes, t.expires_at,
       t.revoked_at, m.subscriber_id, m.roles, m.is_platform, m.tenant_title
  FROM ledger_tokenrow t
  LEFT JOIN ledger_memberrow m ON m.tenant_id = t.tenant_id AND m.user_id = t.user_id
 WHERE t.sha256 = ANY(%s)
"""

NOTED_MAX = 10_000

_noted: dict[UUID, datetime] = {}
"""When this process last wrote that a token was used: most requests write nothing at all."""

# Asks again, because other processes write too.
_NOTE_USE = """
INSERT INTO ledger_tokenuse AS u (token_id, used_at) VALUES (%s, %s)
ON CONFLICT (token_id) DO UPDATE SET used_at = EXCLUDED.used_at WHERE u.used_at <= %s
"""


class _Holder(NamedTuple):
    """A token and the membership it was made for; that part is None where it has ended."""

    sha256: str
    token_id: TokenId
    tenant_id: TenantId
    user_id: UserId | None
    host_id: HostId | None
    title: str
    scopes: list[str]
    expires_at: datetime
    revoked_at: datetime | None
    subscriber_id: SubscriberId | None
    roles: list[Role] | None
    is_platform: bool | None
    tenant_title: str | None


class TokenNotKnown(Unauthenticated):
    """There is no token like that here.

    `prefix` tells which one was sent. Tokens made a moment ago work a moment later; otherwise
    make a new one on the settings page.
    """


class TokenExpired(Unauthenticated):
    """That token has expired.

    `prefix` tells which one was sent. Make a new one on the settings page.
    """


class TokenNoLongerWorks(Unauthenticated):
    """That token was revoked.

    `prefix` tells which one was sent. Make a new one on the settings page.
    """


class NoLongerMember(Unauthenticated):
    """The person this token was made for is no longer a member of the organisation."""


def actor_of_token(text: str, *, now: datetime) -> Actor:
    """Tell who acts with this token.

    Raises: TokenMalformed, TokenChecksumWrong, TokenNotKnown, TokenExpired, TokenNoLongerWorks,
        NoLongerMember, SecondFactorMissing.
    """
    [actor] = actors_of_tokens([text], now=now)
    if isinstance(actor, Refusal):
        raise actor
    return actor


def actors_of_tokens(texts: Sequence[str], *, now: datetime) -> list[Actor | Refusal]:
    """Tell who acts with each of these tokens, or what `actor_of_token` would raise."""
    written = [_read(text) for text in texts]
    asked = sorted({each.sha256 for each in written if isinstance(each, Written)})
    holders = {row[0]: _Holder(*row) for row in ask_for_all(_HOLDERS, [asked])} if asked else {}
    short = lacking((each.user_id, each.roles or ()) for each in holders.values())
    return [
        each if isinstance(each, Refusal) else _proved(each, holders.get(each.sha256), short, now)
        for each in written
    ]


def _read(text: str) -> Written | Refusal:
    try:
        return read(text)
    except Refusal as refusal:
        return refusal


def _proved(
    written: Written, holder: _Holder | None, short: Collection[UserId], now: datetime
) -> Actor | Refusal:
    """short: people who may not act for want of a second factor."""
    if holder is None:
        return TokenNotKnown(prefix=written.prefix)
    if holder.revoked_at is not None:
        return TokenNoLongerWorks(prefix=written.prefix, revoked_at=holder.revoked_at)
    if holder.expires_at <= now:
        return TokenExpired(prefix=written.prefix, expires_at=holder.expires_at)
    if holder.host_id is None and holder.roles is None:
        return NoLongerMember(prefix=written.prefix)
    if holder.user_id in short:
        return SecondFactorMissing(prefix=written.prefix)
    _note_use(holder.token_id, now)
    return Actor(
        tenant_id=holder.tenant_id,
        user_id=holder.user_id,
        host_id=holder.host_id,
        subscriber_id=holder.subscriber_id,
        token_id=holder.token_id,
        scopes=frozenset(holder.scopes),
        roles=frozenset(holder.roles or ()),
        is_platform=bool(holder.is_platform),
        title=holder.tenant_title or holder.title,
    )


def actors_of_person(user_id: UserId) -> list[Actor]:
    """Return every actor a signed-in person may be, the longest-standing membership first."""
    members = MemberRow.objects.filter(user_id=user_id).order_by("admitted_at", "member_id")
    return [_actor(member) for member in members]


def actor_of_person(user_id: UserId, *, tenant_id: str | None) -> Actor | None:
    """Return who a signed-in person acts as: for the tenant they chose, or for their first one.

    tenant_id: as the session keeps it; a tenant they are no member of any more does not count.
    """
    actors = actors_of_person(user_id)
    chosen = [actor for actor in actors if str(actor.tenant_id) == tenant_id]
    return next(iter(chosen or actors), None)


def _actor(member: MemberRow) -> Actor:
    unit = member.subscriber_id
    return Actor(
        tenant_id=TenantId(member.tenant_id),
        user_id=UserId(member.user_id),
        subscriber_id=None if unit is None else SubscriberId(unit),
        roles=cast("frozenset[Role]", frozenset(member.roles)),
        is_platform=member.is_platform,
        title=member.tenant_title,
    )


def _note_use(token_id: TokenId, now: datetime) -> None:
    noted = _noted.get(token_id)
    if noted is not None and now - noted < USE_WRITTEN_EVERY:
        return
    with connection.cursor() as cursor:
        cursor.execute(_NOTE_USE, (token_id, now, now - USE_WRITTEN_EVERY))
    if len(_noted) >= NOTED_MAX:
        _noted.clear()
    _noted[token_id] = now
