"""What may be asked about invitations. A link's secret never comes here, only its hash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.events import (
    InvitationAccepted,
    InvitationRevoked,
    MemberAdmitted,
    MemberInvited,
)
from ledger.domain.ids import InvitationId, SubscriberId, TenantId, UserId
from ledger.domain.invitations import InvitationMadeBefore
from ledger.domain.parties import Tenant, TenantUnknown
from ledger.domain.tokens import Written
from ledger.eventstore.port import EventStore, Meta, Position, load, record


def invite_member(
    store: EventStore,
    *,
    tenant_id: TenantId,
    invitation_id: InvitationId,
    user_id: UserId,
    invited_by: UserId,
    roles: Sequence[str],
    subscriber_id: SubscriberId | None,
    by_mail: bool,
    written: Written,
    expires_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """Invite a person by a link.

    written: what `tokens.read` says of the secret in the link.
    Raises: TenantUnknown, RolesUnknown, SubscriberUnknown, AlreadyMember, TooManyInvitations,
        InvitationLifeOutOfRange, InvitationMadeBefore.
    """

    def decide(tenant: Tenant | None) -> list[InvitationRevoked | MemberInvited]:
        return _known(tenant, tenant_id).invite(
            invitation_id=invitation_id,
            user_id=user_id,
            invited_by=invited_by,
            roles=roles,
            subscriber_id=subscriber_id,
            by_mail=by_mail,
            written=written,
            expires_at=expires_at,
            now=now,
        )

    position = record(store, Tenant, tenant_id, decide, by=by)
    made = _known(load(store, Tenant, tenant_id), tenant_id).invitations.get(invitation_id)
    # A repeat of the request found the first one's invitation, whose link nobody has any more.
    if made is None or made.made.sha256 != written.sha256:
        raise InvitationMadeBefore(invitation_id=invitation_id)
    return position


def revoke_invitation(
    store: EventStore,
    *,
    tenant_id: TenantId,
    invitation_id: InvitationId,
    by: Meta,
    now: datetime,
) -> Position:
    """Take an invitation back; doing it again changes nothing.

    Raises: TenantUnknown, InvitationUnknown, InvitationUsed.
    """

    def decide(tenant: Tenant | None) -> list[InvitationRevoked]:
        return _known(tenant, tenant_id).revoke_invitation(invitation_id=invitation_id, now=now)

    return record(store, Tenant, tenant_id, decide, by=by)


def accept_invitation(
    store: EventStore,
    *,
    tenant_id: TenantId,
    invitation_id: InvitationId,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Make the invited person a member, once.

    Raises: TenantUnknown, InvitationUnknown, InvitationUsed, InvitationTakenBack,
        InvitationExpired, InvitationForAnother, TooManyMembers.
    """

    def decide(
        tenant: Tenant | None,
    ) -> list[InvitationAccepted | MemberAdmitted | InvitationRevoked]:
        return _known(tenant, tenant_id).accept_invitation(
            invitation_id=invitation_id, user_id=user_id, now=now
        )

    return record(store, Tenant, tenant_id, decide, by=by)


def _known(tenant: Tenant | None, tenant_id: TenantId) -> Tenant:
    if tenant is None:
        raise TenantUnknown(tenant_id=tenant_id)
    return tenant
