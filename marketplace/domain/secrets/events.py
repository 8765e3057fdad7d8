"""What is recorded of secrets: their names and versions, and where they went. Never a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, TenantId, UserId


class SecretSet(Event, name="marketplace.secret-set"):
    """A secret has a value, or a new one; the one before is gone.

    secret: its name. user_id: None: a program of the organisation set it.
    """

    secret_id: UUID
    tenant_id: TenantId
    secret: str
    version: int
    user_id: UserId | None
    at: datetime


class SecretRemoved(Event, name="marketplace.secret-removed"):
    """A secret and its value are gone. Work that was handed it still has it."""

    secret_id: UUID
    tenant_id: TenantId
    secret: str
    user_id: UserId | None
    at: datetime


SecretEvent = SecretSet | SecretRemoved


@dataclass(frozen=True, slots=True)
class SecretVersion:
    """Which value of which secret."""

    secret_id: UUID
    secret: str
    version: int


class SecretsDelivered(Event, name="marketplace.secrets-delivered"):
    """The agent of a host was handed the secrets of a lease's work, sealed for one attempt.

    attempt_id: for which; after a restart an agent asks again, for another.
    """

    lease_id: LeaseId
    tenant_id: TenantId
    host_id: HostId
    attempt_id: UUID
    secrets: tuple[SecretVersion, ...]
    at: datetime


DeliveryEvent = SecretsDelivered
