"""Values of secrets: taken in, replaced, removed, opened for work, wrapped anew.

A value goes in with the events of its secret, one secret of an organisation after the other, and
comes out of here in `opened` alone, which is for the agent of the host that runs the work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from ledger.domain.ids import HostId, LeaseId, TenantId, UserId
from ledger.eventstore.port import EventStore, Meta, Position, load
from ledger.vault import Sealed, Vault, VaultLocked
from marketplace.commands import secrets as commands
from marketplace.domain.secrets.events import SecretsDelivered, SecretVersion
from marketplace.domain.secrets.secret import (
    LeaseNotToRun,
    Secret,
    SecretMissing,
    need_name,
    need_room,
    next_version,
    secret_id_of,
    value_bytes,
)
from marketplace.models.secrets import SecretValueRow
from marketplace.queries.leases import assignments_for

BATCH = 500
"""So many values are wrapped anew in one transaction."""
OPEN_ATTEMPTS_MAX = 2
"""A value may be wrapped anew between the reading of its row and that of the keys."""

_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('secrets ' || %s, 0))"
_SEALING = "SELECT pg_advisory_xact_lock_shared(hashtextextended('secrets sealed', 0))"
_REWRAPPING = "SELECT pg_advisory_xact_lock(hashtextextended('secrets sealed', 0))"


def set_secret(
    store: EventStore,
    vault: Vault,
    tenant_id: TenantId,
    name: str,
    value: str,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[int, Position]:
    """Keep a value; the one before is gone. Return its version and where that is recorded.

    Raises: SecretNameUnfit, SecretValueUnfit, TooManySecrets.
    """
    need_name(name)
    written = value_bytes(value)
    secret_id = secret_id_of(tenant_id, name)
    with _alone(tenant_id):
        kept = SecretValueRow.objects.filter(tenant_id=tenant_id)
        need_room(set(kept.values_list("name", flat=True)), name)
        version = next_version(load(store, Secret, secret_id))
        sealed = vault.seal(label_of(tenant_id, name, version), written)
        SecretValueRow.objects.update_or_create(
            secret_id=secret_id,
            defaults={
                "tenant_id": tenant_id,
                "name": name,
                "version": version,
                "master": sealed.master,
                "key": sealed.key,
                "value": sealed.value,
            },
        )
        position = commands.note_value(
            store,
            tenant_id=tenant_id,
            name=name,
            version=version,
            user_id=user_id,
            by=by,
            now=now,
        )
    return version, position


def remove_secret(
    store: EventStore,
    tenant_id: TenantId,
    name: str,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Keep a secret no longer: its value is gone with this.

    Raises: SecretUnknown.
    """
    with _alone(tenant_id):
        SecretValueRow.objects.filter(secret_id=secret_id_of(tenant_id, name)).delete()
        return commands.remove_secret(
            store, tenant_id=tenant_id, name=name, user_id=user_id, by=by, now=now
        )


def opened(
    vault: Vault, tenant_id: UUID, names: Sequence[str]
) -> tuple[dict[str, bytes], tuple[SecretVersion, ...]]:
    """Return the values of secrets by name, and which versions those are.

    Raises: SecretMissing, VaultLocked.
    """
    rows = list(SecretValueRow.objects.filter(tenant_id=tenant_id, name__in=names))
    missing = sorted(set(names) - {row.name for row in rows})
    if missing:
        raise SecretMissing(secrets=missing)
    values = {row.name: _opened(vault, tenant_id, row) for row in rows}
    return values, tuple(SecretVersion(row.secret_id, row.name, row.version) for row in rows)


def handed_out(
    store: EventStore,
    vault: Vault,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    attempt_id: UUID,
    by: Meta,
    now: datetime,
) -> dict[str, bytes]:
    """Return the secrets of a lease that is to run on this host, by name, and note that.

    Raises: LeaseNotToRun, SecretMissing, TooManyDeliveries, VaultLocked.
    """
    here = (each for each in assignments_for(host_id) if each.lease_id == lease_id)
    wanted = next((each for each in here if each.phase == "run"), None)
    if wanted is None or wanted.tenant_id is None or wanted.ends_at <= now:
        raise LeaseNotToRun(lease_id=lease_id)
    more = [wanted.fetch_secret] if wanted.fetch_secret else []
    if not (names := list(dict.fromkeys([*wanted.secrets, *more]))):
        raise LeaseNotToRun(lease_id=lease_id)
    values, versions = opened(vault, wanted.tenant_id, names)
    delivered = SecretsDelivered(
        lease_id=lease_id,
        tenant_id=TenantId(wanted.tenant_id),
        host_id=host_id,
        attempt_id=attempt_id,
        secrets=versions,
        at=now,
    )
    commands.note_delivery(store, delivered, by=by)
    return values


def rewrap_all(vault: Vault) -> tuple[int, int]:
    """Wrap every value with the installation's current key; return how many, and how many not.

    Those that open with no key of this installation stay as they are. Who sets a secret meanwhile
    waits for a batch.
    """
    done, locked = 0, set[UUID]()
    while True:
        with transaction.atomic():
            _ask(_REWRAPPING)
            old = SecretValueRow.objects.exclude(master=vault.current())
            rows = list(old.exclude(secret_id__in=locked).order_by("secret_id")[:BATCH])
            for row in rows:
                try:
                    sealed = vault.rewrap(_label(row), _sealed(row))
                except VaultLocked:
                    locked.add(row.secret_id)
                    continue
                row.master, row.key = sealed.master, sealed.key
                row.save(update_fields=["master", "key"])
                done += 1
        if not rows:
            return done, len(locked)


def label_of(tenant_id: UUID, name: str, version: int) -> bytes:
    """Return what a value is sealed under: whose it is, of which name and version."""
    return json.dumps([str(tenant_id), name, version]).encode()


def _opened(vault: Vault, tenant_id: UUID, row: SecretValueRow) -> bytes:
    for attempt in range(OPEN_ATTEMPTS_MAX):
        try:
            # By who asks, and not by what the row says of itself.
            label = label_of(tenant_id, row.name, row.version)
            return vault.open(label, _sealed(row))
        except VaultLocked:
            if attempt + 1 == OPEN_ATTEMPTS_MAX:
                raise
            row.refresh_from_db()
    raise AssertionError("the last attempt returns or raises")


def _label(row: SecretValueRow) -> bytes:
    return label_of(row.tenant_id, row.name, row.version)


def _sealed(row: SecretValueRow) -> Sealed:
    return Sealed(row.master, bytes(row.key), bytes(row.value))


@contextmanager
def _alone(tenant_id: UUID) -> Iterator[None]:
    """Let nobody else change this organisation's secrets, nor wrap values anew, meanwhile."""
    with transaction.atomic():
        _ask(_SEALING)
        _ask(_ALONE, str(tenant_id))
        yield


def _ask(lock: str, *about: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(lock, about)
