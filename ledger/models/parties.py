"""Read models of who takes part: tenants, their units and members, and API tokens."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class TenantRow(models.Model):
    """An organisation."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    tenant_id = models.UUIDField(primary_key=True)
    slug = models.CharField(max_length=40)
    title = models.CharField(max_length=120)
    currency = models.CharField(max_length=3)
    is_platform = models.BooleanField()
    registered_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.title


class SubscriberRow(models.Model):
    """A business unit of a tenant, charged to its cost centre."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    subscriber_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    title = models.CharField(max_length=120)
    cost_centre = models.CharField(max_length=60)
    registered_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.title


class MemberRow(models.Model):
    """A person who may act for a tenant, now. Removed with the membership."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    member_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    user_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField(null=True)
    roles = ArrayField(models.CharField(max_length=20))
    tenant_title = models.CharField(max_length=120)
    is_platform = models.BooleanField()
    admitted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.user_id} for {self.tenant_title}"


class InvitationRow(models.Model):
    """An invitation: the hash of its link's secret, never the secret."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    invitation_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    user_id = models.UUIDField()
    invited_by = models.UUIDField()
    roles = ArrayField(models.CharField(max_length=20))
    subscriber_id = models.UUIDField(null=True)
    by_mail = models.BooleanField()
    prefix = models.CharField(max_length=24)
    sha256 = models.CharField(max_length=64, unique=True)
    invited_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.prefix}… for {self.user_id}"


class TokenRow(models.Model):
    """An API token: its hash, never its secret. Exactly one of `user_id` and `host_id` is set."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    token_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    user_id = models.UUIDField(null=True)
    host_id = models.UUIDField(null=True)
    title = models.CharField(max_length=120)
    prefix = models.CharField(max_length=24)
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=20))
    expires_at = models.DateTimeField()
    issued_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.prefix}… {self.title}"


class TokenUse(models.Model):
    """When a token was last used, to the minute. No read model: written by requests."""

    token_id = models.UUIDField(primary_key=True)
    used_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.token_id} at {self.used_at}"
