"""Who takes part, as one actor may see it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invitations import InvitationUnknown, State, state_of
from ledger.domain.parties import TenantUnknown
from ledger.domain.tokens import TokenUnknown
from ledger.models import (
    InvitationRow,
    MemberRow,
    Person,
    SubscriberRow,
    TenantRow,
    TokenRow,
    TokenUse,
)


def tenants(actor: Actor) -> QuerySet[TenantRow]:
    """Return the actor's own tenant; all of them for the platform's operators and auditors."""
    return visible(actor, TenantRow)


def tenant(actor: Actor, tenant_id: TenantId) -> TenantRow:
    """Return one tenant.

    Raises: TenantUnknown, also for one that the actor may not see.
    """
    found = visible(actor, TenantRow).filter(pk=tenant_id).first()
    if found is None:
        raise TenantUnknown(tenant_id=tenant_id)
    return found


def tenant_run_by(actor: Actor, tenant_id: UUID | None = None) -> TenantRow:
    """Return an organisation that the actor looks after; None: their own.

    Raises: TenantUnknown for one that the actor may not see, RoleMissing, PlatformOnly.
    """
    found = tenant(actor, actor.tenant_id if tenant_id is None else TenantId(tenant_id))
    actor.need_to_run(TenantId(found.tenant_id))
    return found


def subscribers(actor: Actor, tenant_id: UUID | None = None) -> QuerySet[SubscriberRow]:
    """Return the business units of a tenant that the actor may see; None: of their own."""
    whose = actor.tenant_id if tenant_id is None else tenant_id
    return visible(actor, SubscriberRow).filter(tenant_id=whose)


def unit_titles(actor: Actor) -> dict[UUID, str]:
    """Return the titles of all business units that the actor may see."""
    return dict(visible(actor, SubscriberRow).values_list("subscriber_id", "title"))


def unit_tenants(actor: Actor) -> dict[UUID, UUID]:
    """Return whose each business unit is that the actor may see."""
    return dict(visible(actor, SubscriberRow).values_list("subscriber_id", "tenant_id"))


def members(actor: Actor, tenant_id: UUID | None = None) -> QuerySet[MemberRow]:
    """Return the members of a tenant that the actor may see; None: of their own."""
    whose = actor.tenant_id if tenant_id is None else tenant_id
    return visible(actor, MemberRow).filter(tenant_id=whose)


def is_member_elsewhere(user_id: UserId, tenant_id: UUID) -> bool:
    """Tell if a person acts for another tenant than this one."""
    return MemberRow.objects.filter(user_id=user_id).exclude(tenant_id=tenant_id).exists()


def invitations(actor: Actor, tenant_id: UUID | None = None) -> QuerySet[InvitationRow]:
    """Return the invitations of a tenant that the actor may see; None: of their own."""
    whose = actor.tenant_id if tenant_id is None else tenant_id
    return visible(actor, InvitationRow).filter(tenant_id=whose)


def state_of_invitation(row: InvitationRow, *, now: datetime) -> State:
    """Tell how an invitation stands."""
    if row.accepted_at is not None:
        return state_of("accepted", row.expires_at, now=now)
    return state_of("revoked" if row.revoked_at else None, row.expires_at, now=now)


def invitation_of_link(
    *, sha256: str | None = None, invitation_id: UUID | None = None
) -> tuple[InvitationRow, TenantRow]:
    """Return an invitation and its tenant, to whoever holds its link.

    invitation_id: of whom this is known already, as their session tells.
    Raises: InvitationUnknown.
    """
    rows = InvitationRow.objects.filter
    found = (rows(pk=invitation_id) if invitation_id else rows(sha256=sha256)).first()
    if found is None:
        raise InvitationUnknown()
    return found, TenantRow.objects.get(pk=found.tenant_id)


def members_seen(actor: Actor) -> QuerySet[MemberRow]:
    """Return all members that the actor may see, by tenant."""
    return visible(actor, MemberRow).order_by("tenant_title", "member_id")


def tokens(actor: Actor) -> QuerySet[TokenRow]:
    """Return the actor's own tokens; an operator's: all of the tenant."""
    mine = visible(actor, TokenRow).filter(tenant_id=actor.tenant_id)
    if "operator" in actor.roles:
        return mine
    return mine.filter(user_id=actor.user_id, host_id=None)


def token(actor: Actor, token_id: UUID) -> TokenRow:
    """Return one of `tokens`.

    Raises: TokenUnknown.
    """
    found = tokens(actor).filter(pk=token_id).first()
    if found is None:
        raise TokenUnknown(token_id=token_id)
    return found


def tokens_of_host(actor: Actor, host_id: UUID) -> QuerySet[TokenRow]:
    """Return the tokens that were made for a host's agent, the newest first."""
    mine = visible(actor, TokenRow).filter(host_id=host_id)
    return mine.order_by("-issued_at", "token_id")


def last_uses(token_ids: Iterable[UUID]) -> dict[UUID, datetime]:
    """Return when tokens were last used, to the minute; those never used are not in it."""
    uses = TokenUse.objects.filter(token_id__in=list(token_ids))
    return {use.token_id: use.used_at for use in uses}


def people(user_ids: Iterable[UUID]) -> dict[UUID, Person]:
    """Return persons by id, to put names to ids that a visible row carries."""
    return Person.objects.in_bulk(list(user_ids))
