"""Who may still act, of those that proved themselves a while ago and have not gone since."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

from ledger.access.second_factor import lacking
from ledger.domain.events import Role
from ledger.domain.ids import UserId
from ledger.domain.tokens import ROLES_OF_SCOPE, Scope, carries
from ledger.models import MemberRow, TokenRow


class Bearer(NamedTuple):
    """A person acting for a tenant, or, without one, the holder of a token of a host.

    token_id: what they proved themselves by; None: a session.
    """

    tenant_id: UUID
    user_id: UUID | None
    token_id: UUID | None


def who_may_still(bearers: Collection[Bearer], scope: Scope, *, now: datetime) -> set[Bearer]:
    """Return those that would be let in today: their membership, roles and token still stand."""
    people = [each for each in bearers if each.user_id is not None]
    members: dict[tuple[UUID, UUID], list[Role]] = {}
    for member in MemberRow.objects.filter(
        tenant_id__in={each.tenant_id for each in people},
        user_id__in={each.user_id for each in people},
    ):
        roles = members.setdefault((member.tenant_id, member.user_id), [])
        roles += cast("list[Role]", member.roles)
    short = lacking((UserId(user), roles) for (_, user), roles in members.items())
    named = {each.token_id for each in bearers if each.token_id is not None}
    tokens = {
        row.token_id: row
        for row in TokenRow.objects.filter(
            token_id__in=named, revoked_at__isnull=True, expires_at__gt=now
        )
    }

    def may(bearer: Bearer) -> bool:
        if bearer.token_id is not None:
            token = tokens.get(bearer.token_id)
            if token is None or not carries(frozenset(token.scopes), scope):
                return False
        if bearer.user_id is None:
            return bearer.token_id is not None
        roles = members.get((bearer.tenant_id, bearer.user_id), [])
        return bool(ROLES_OF_SCOPE[scope] & set(roles)) and bearer.user_id not in short

    return {bearer for bearer in bearers if may(bearer)}
