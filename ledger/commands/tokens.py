"""What may be asked about API tokens. The secret itself never comes here, only its hash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.domain import tokens
from ledger.domain.events import Role, TokenIssued, TokenRevoked
from ledger.domain.ids import HostId, TenantId, TokenId, UserId
from ledger.domain.parties import MemberUnknown, Tenant, TenantUnknown
from ledger.domain.tokens import Token, TokenMadeBefore, TokenUnknown, Written
from ledger.eventstore.port import EventStore, Meta, Position, load, record


def issue_token(
    store: EventStore,
    *,
    token_id: TokenId,
    tenant_id: TenantId,
    user_id: UserId,
    written: Written,
    title: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Make a token for a member of a tenant.

    written: what `tokens.read` says of the text that the person is shown once.
    Raises: TenantUnknown, MemberUnknown, TokenWithoutScope, ScopeBeyondRoles, BeyondOwnToken,
        TokenLifeOutOfRange, TokenTitleMissing, TokenMadeBefore.
    """
    tenant = _tenant(store, tenant_id)
    roles = tenant.roles_of(user_id)
    if not roles:
        raise MemberUnknown(user_id=user_id)
    terms = tokens.issue(
        token_id=token_id,
        tenant_id=tenant_id,
        holder=user_id,
        written=written,
        title=title,
        scopes=scopes,
        roles=roles,
        expires_at=expires_at,
        maker=_maker(store, by.token_id),
        now=now,
    )
    return _issue(store, terms, by=by)


def issue_host_token(
    store: EventStore,
    *,
    token_id: TokenId,
    tenant_id: TenantId,
    host_id: HostId,
    written: Written,
    title: str,
    expires_at: datetime | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Make a token for the agent of one host. That the host is the tenant's, the caller checks.

    Raises: TenantUnknown, TokenLifeOutOfRange, TokenTitleMissing, TokenMadeBefore.
    """
    _tenant(store, tenant_id)
    no_roles: frozenset[Role] = frozenset()
    terms = tokens.issue(
        token_id=token_id,
        tenant_id=tenant_id,
        holder=host_id,
        written=written,
        title=title,
        scopes=("agent",),
        roles=no_roles,
        expires_at=expires_at,
        maker=_maker(store, by.token_id),
        now=now,
    )
    return _issue(store, terms, by=by)


def revoke_token(
    store: EventStore,
    *,
    token_id: TokenId,
    tenant_id: TenantId,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Stop a token before its time; stopping it again changes nothing.

    user_id: whose token it must be; None where any of the tenant's may be stopped.
    Raises: TokenUnknown.
    """

    def decide(token: Token | None) -> list[TokenRevoked]:
        if token is None or token.issued.tenant_id != tenant_id:
            raise TokenUnknown(token_id=token_id)
        if user_id is not None and token.issued.user_id != user_id:
            raise TokenUnknown(token_id=token_id)
        return token.revoke(now=now)

    return record(store, Token, token_id, decide, by=by)


def _issue(store: EventStore, terms: TokenIssued, *, by: Meta) -> Position:
    def decide(token: Token | None) -> list[TokenIssued]:
        if token is None:
            return [terms]
        raise TokenMadeBefore(token_id=terms.token_id)

    position = record(store, Token, terms.token_id, decide, by=by)
    made = load(store, Token, terms.token_id)
    # A repeat of the request found the first one's token, whose text nobody has any more.
    if made is None or made.issued.sha256 != terms.sha256:
        raise TokenMadeBefore(token_id=terms.token_id)
    return position


def _maker(store: EventStore, token_id: UUID | None) -> TokenIssued | None:
    if token_id is None:
        return None
    token = load(store, Token, token_id)
    return token.issued if token else None


def _tenant(store: EventStore, tenant_id: TenantId) -> Tenant:
    tenant = load(store, Tenant, tenant_id)
    if tenant is None:
        raise TenantUnknown(tenant_id=tenant_id)
    return tenant
