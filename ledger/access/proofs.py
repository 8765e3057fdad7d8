"""From a proof to an actor: a bearer token, or a signed-in person and the tenant they act for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

from django.db import connection

from ledger.access.actors import Actor
from ledger.domain.events import Role
from ledger.domain.ids import HostId, SubscriberId, TenantId, TokenId, UserId
from ledger.domain.refusal import Unauthenticated
from ledger.domain.tokens import read
from ledger.models import MemberRow, TokenRow

TENANT_CHOSEN = "tenant_id"
"""Key of the session under which a person's choice of tenant is kept."""

USE_WRITTEN_EVERY = timedelta(minutes=1)

# One statement, so that a hundred requests a second cost one write a minute.
_NOTE_USE = """
INSERT INTO ledger_tokenuse AS u (token_id, used_at) VALUES (%s, %s)
ON CONFLICT (token_id) DO UPDATE SET used_at = EXCLUDED.used_at WHERE u.used_at <= %s
"""


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
        NoLongerMember.
    """
    written = read(text)
    row = TokenRow.objects.filter(sha256=written.sha256).first()
    if row is None:
        raise TokenNotKnown(prefix=written.prefix)
    if row.revoked_at is not None:
        raise TokenNoLongerWorks(prefix=row.prefix, revoked_at=row.revoked_at)
    if row.expires_at <= now:
        raise TokenExpired(prefix=row.prefix, expires_at=row.expires_at)
    actor = _actor_of_row(row)
    _note_use(row, now)
    return actor


def _actor_of_row(row: TokenRow) -> Actor:
    token_id, scopes = TokenId(row.token_id), frozenset(row.scopes)
    if row.host_id is not None:
        return Actor(
            tenant_id=TenantId(row.tenant_id),
            host_id=HostId(row.host_id),
            token_id=token_id,
            scopes=scopes,
            title=row.title,
        )
    assert row.user_id is not None
    member = MemberRow.objects.filter(tenant_id=row.tenant_id, user_id=row.user_id).first()
    if member is None:
        raise NoLongerMember(prefix=row.prefix)
    return _actor(member, token_id=token_id, scopes=scopes)


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


def _actor(
    member: MemberRow, *, token_id: TokenId | None = None, scopes: frozenset[str] | None = None
) -> Actor:
    unit = member.subscriber_id
    return Actor(
        tenant_id=TenantId(member.tenant_id),
        user_id=UserId(member.user_id),
        subscriber_id=None if unit is None else SubscriberId(unit),
        token_id=token_id,
        scopes=scopes,
        roles=cast("frozenset[Role]", frozenset(member.roles)),
        is_platform=member.is_platform,
        title=member.tenant_title,
    )


def _note_use(row: TokenRow, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_NOTE_USE, (row.token_id, now, now - USE_WRITTEN_EVERY))
