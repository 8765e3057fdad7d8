"""What the book of record asks for when something happened."""

from __future__ import annotations

from ledger import commands, receivables
from ledger.domain.events import TenantRegistered
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of
from ledger.invoicing import POST_DOCUMENTS, TELL_OF_DOCUMENTS


def open_accounts_when_tenant_registered(recorded: Recorded, store: EventStore) -> None:
    """Give a new tenant the account of its earnings; the platform those of its own as well."""
    tenant = recorded.event
    assert isinstance(tenant, TenantRegistered)
    commands.open_tenant_accounts(
        store,
        tenant_id=tenant.tenant_id,
        title=tenant.title,
        currency=tenant.currency,
        is_platform=tenant.is_platform,
        by=Meta.because(recorded, policy="open-accounts-when-tenant-registered"),
        now=tenant.at,
    )


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="ledger.open-accounts-when-tenant-registered",
        react=open_accounts_when_tenant_registered,
        on=names_of(TenantRegistered),
    ),
    POST_DOCUMENTS,
    TELL_OF_DOCUMENTS,
    receivables.RESUME,
    receivables.TELL,
)
