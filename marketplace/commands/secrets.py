"""What may be asked about secrets, but for their values: to note a new one, and to remove one."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import TenantId, UserId
from ledger.eventstore.port import EventStore, Meta, Position, record
from marketplace.domain.secrets.events import SecretsDelivered
from marketplace.domain.secrets.secret import (
    Delivery,
    Secret,
    deliver,
    delivery_id_of,
    give_value,
    remove,
    secret_id_of,
)


def note_value(
    store: EventStore,
    *,
    tenant_id: TenantId,
    name: str,
    version: int,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Take note that a secret has a new value, which is kept already.

    version: as `next_version` gave it; who asks lets nobody else set the secret meanwhile.
    """
    return record(
        store,
        Secret,
        secret_id_of(tenant_id, name),
        lambda secret: give_value(
            secret, tenant_id=tenant_id, name=name, version=version, user_id=user_id, now=now
        ),
        by=by,
    )


def remove_secret(
    store: EventStore,
    *,
    tenant_id: TenantId,
    name: str,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Keep a secret no longer.

    Raises: SecretUnknown.
    """
    return record(
        store,
        Secret,
        secret_id_of(tenant_id, name),
        lambda secret: remove(secret, tenant_id=tenant_id, name=name, user_id=user_id, now=now),
        by=by,
    )


def note_delivery(store: EventStore, delivered: SecretsDelivered, *, by: Meta) -> Position:
    """Take note that a host is handed the secrets of a lease's work.

    Raises: TooManyDeliveries.
    """
    delivery_id = delivery_id_of(delivered.lease_id, delivered.host_id)
    return record(
        store, Delivery, delivery_id, lambda delivery: deliver(delivery, delivered), by=by
    )
