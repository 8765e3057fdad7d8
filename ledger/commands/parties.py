"""What may be asked about who takes part."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain import parties
from ledger.domain.events import (
    InvitationRevoked,
    MemberAdmitted,
    MemberRemoved,
    SecondFactorRemoved,
    SubscriberRegistered,
    TenantRegistered,
)
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.parties import Tenant, TenantUnknown, tenant_id_of
from ledger.eventstore.port import EventStore, Meta, Position, record


def register_tenant(
    store: EventStore, *, slug: str, title: str, currency: str, by: Meta, now: datetime
) -> Position:
    """Let an organisation join. Its id is `ledger.domain.parties.tenant_id_of(slug)`.

    Returns: the store position at which it takes part.
    Raises: SlugUnreadable, SlugTaken, TitleMissing, CurrencyUnknown.
    """

    def decide(tenant: Tenant | None) -> list[TenantRegistered]:
        return parties.register(tenant, slug=slug, title=title, currency=currency, now=now)

    return record(store, Tenant, tenant_id_of(slug), decide, by=by)


def add_subscriber(
    store: EventStore,
    *,
    tenant_id: TenantId,
    subscriber_id: SubscriberId,
    title: str,
    cost_centre: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Set up a business unit of a tenant.

    Raises: TenantUnknown, TitleMissing, CostCentreUnreadable, CostCentreTaken,
        SubscriberIdTaken, TooManySubscribers.
    """

    def decide(tenant: Tenant | None) -> list[SubscriberRegistered]:
        return _known(tenant, tenant_id).add_subscriber(
            subscriber_id=subscriber_id, title=title, cost_centre=cost_centre, now=now
        )

    return record(store, Tenant, tenant_id, decide, by=by)


def admit_member(
    store: EventStore,
    *,
    tenant_id: TenantId,
    user_id: UserId,
    roles: Sequence[str],
    subscriber_id: SubscriberId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Let a person act for a tenant, or change in which roles and for which unit they do.

    Raises: TenantUnknown, RolesUnknown, SubscriberUnknown, LastOperator, TooManyMembers.
    """

    def decide(tenant: Tenant | None) -> list[MemberAdmitted | InvitationRevoked]:
        return _known(tenant, tenant_id).admit(
            user_id=user_id, roles=roles, subscriber_id=subscriber_id, now=now
        )

    return record(store, Tenant, tenant_id, decide, by=by)


def change_member(
    store: EventStore,
    *,
    tenant_id: TenantId,
    user_id: UserId,
    roles: Sequence[str],
    subscriber_id: SubscriberId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Change in which roles and for which unit a member acts.

    Raises: TenantUnknown, MemberUnknown, RolesUnknown, SubscriberUnknown, LastOperator.
    """

    def decide(tenant: Tenant | None) -> list[MemberAdmitted | InvitationRevoked]:
        return _known(tenant, tenant_id).change_member(
            user_id=user_id, roles=roles, subscriber_id=subscriber_id, now=now
        )

    return record(store, Tenant, tenant_id, decide, by=by)


def remove_member(
    store: EventStore, *, tenant_id: TenantId, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """End a membership; the person's tokens for the tenant stop working.

    Raises: TenantUnknown, MemberUnknown, LastOperator.
    """

    def decide(tenant: Tenant | None) -> list[MemberRemoved | InvitationRevoked]:
        return _known(tenant, tenant_id).remove(user_id=user_id, now=now)

    return record(store, Tenant, tenant_id, decide, by=by)


def remove_second_factor(
    store: EventStore, *, tenant_id: TenantId, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Put on record that a member's second factor is removed.

    Raises: TenantUnknown, MemberUnknown.
    """

    def decide(tenant: Tenant | None) -> list[SecondFactorRemoved]:
        return _known(tenant, tenant_id).remove_second_factor(user_id=user_id, now=now)

    return record(store, Tenant, tenant_id, decide, by=by)


def _known(tenant: Tenant | None, tenant_id: TenantId) -> Tenant:
    if tenant is None:
        raise TenantUnknown(tenant_id=tenant_id)
    return tenant
