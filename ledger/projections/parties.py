"""Rows of who takes part, and of their API tokens."""

from __future__ import annotations

from ledger.domain.events import (
    InvitationAccepted,
    InvitationRevoked,
    MemberAdmitted,
    MemberInvited,
    MemberRemoved,
    SubscriberRegistered,
    TenantRegistered,
    TokenIssued,
    TokenRevoked,
    TokenSucceeded,
)
from ledger.domain.parties import member_id_of
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models import InvitationRow, MemberRow, SubscriberRow, TenantRow, TokenRow
from ledger.rows import Rows


def project_parties(recorded: Recorded, rows: Rows) -> None:
    """Keep tenants, their units and their members equal to the tenant streams."""
    match recorded.event:
        case TenantRegistered() as tenant:
            rows.add(
                TenantRow(
                    tenant_id=tenant.tenant_id,
                    slug=tenant.slug,
                    title=tenant.title,
                    currency=tenant.currency,
                    is_platform=tenant.is_platform,
                    registered_at=tenant.at,
                )
            )
        case SubscriberRegistered() as unit:
            rows.add(
                SubscriberRow(
                    subscriber_id=unit.subscriber_id,
                    tenant_id=unit.tenant_id,
                    title=unit.title,
                    cost_centre=unit.cost_centre,
                    registered_at=unit.at,
                )
            )
        case MemberAdmitted() as admitted:
            _admit(admitted, rows)
        case MemberRemoved() as removed:
            rows.remove(MemberRow, member_id_of(removed.tenant_id, removed.user_id))
        case MemberInvited() as invited:
            _invite(invited, rows)
        case InvitationAccepted() as accepted:
            rows.change(InvitationRow, accepted.invitation_id, accepted_at=accepted.at)
        case InvitationRevoked() as revoked:
            rows.change(InvitationRow, revoked.invitation_id, revoked_at=revoked.at)


def _admit(admitted: MemberAdmitted, rows: Rows) -> None:
    member_id = member_id_of(admitted.tenant_id, admitted.user_id)
    terms = {"subscriber_id": admitted.subscriber_id, "roles": list(admitted.roles)}
    if rows.find(MemberRow, member_id) is not None:
        rows.change(MemberRow, member_id, **terms)
        return
    tenant = rows.get(TenantRow, admitted.tenant_id)
    rows.add(
        MemberRow(
            member_id=member_id,
            tenant_id=admitted.tenant_id,
            user_id=admitted.user_id,
            tenant_title=tenant.title,
            is_platform=tenant.is_platform,
            admitted_at=admitted.at,
            **terms,
        )
    )


def _invite(invited: MemberInvited, rows: Rows) -> None:
    rows.add(
        InvitationRow(
            invitation_id=invited.invitation_id,
            tenant_id=invited.tenant_id,
            user_id=invited.user_id,
            invited_by=invited.invited_by,
            roles=list(invited.roles),
            subscriber_id=invited.subscriber_id,
            by_mail=invited.by_mail,
            prefix=invited.prefix,
            sha256=invited.sha256,
            invited_at=invited.at,
            expires_at=invited.expires_at,
        )
    )


def project_tokens(recorded: Recorded, rows: Rows) -> None:
    """Keep TokenRow equal to the token streams."""
    match recorded.event:
        case TokenIssued() as issued:
            rows.add(
                TokenRow(
                    token_id=issued.token_id,
                    tenant_id=issued.tenant_id,
                    user_id=issued.user_id,
                    host_id=issued.host_id,
                    title=issued.title,
                    prefix=issued.prefix,
                    sha256=issued.sha256,
                    scopes=list(issued.scopes),
                    expires_at=issued.expires_at,
                    issued_at=issued.at,
                )
            )
        case TokenSucceeded() as succeeded:
            rows.change(TokenRow, succeeded.token_id, expires_at=succeeded.works_until)
        case TokenRevoked() as revoked:
            rows.change(TokenRow, revoked.token_id, revoked_at=revoked.at)


PARTIES = Projection(
    name="ledger.parties",
    project=project_parties,
    tables=(TenantRow, SubscriberRow, MemberRow, InvitationRow),
    on=names_of(
        TenantRegistered,
        SubscriberRegistered,
        MemberAdmitted,
        MemberRemoved,
        MemberInvited,
        InvitationAccepted,
        InvitationRevoked,
    ),
)
TOKENS = Projection(
    name="ledger.tokens",
    project=project_tokens,
    tables=(TokenRow,),
    on=names_of(TokenIssued, TokenSucceeded, TokenRevoked),
)
