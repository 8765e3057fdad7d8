"""What may be a secret of work, its life, and how many an organisation keeps."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain.ids import HostId, LeaseId, TenantId, UserId
from ledger.domain.refusal import Invalid, Refusal, Unknown
from marketplace.domain.secrets.events import (
    DeliveryEvent,
    SecretEvent,
    SecretRemoved,
    SecretsDelivered,
    SecretSet,
)

NAME_LENGTH_MAX = 64
VALUE_BYTES_MAX = 32_768
SECRETS_MAX = 200
"""That an organisation may keep."""
NAMED_MAX = 16
"""That work may name: with values of their most, half a MiB."""

_NAME = re.compile(rf"(?!OFFPEAK_)[A-Za-z_][A-Za-z0-9_]{{0,{NAME_LENGTH_MAX - 1}}}")


class SecretNameUnfit(Invalid):
    """A secret's name is one of an environment variable: up to 64 letters, digits and _.

    It begins with no digit, nor with OFFPEAK_, which is ours.
    """


class SecretValueUnfit(Invalid):
    """A secret's value is text of 1 to 32 768 bytes in UTF-8, without a null character."""


class SecretsUnclear(Invalid):
    """Work names up to 16 secrets, each once; those that are variables are among them.

    A variable is either a secret or said in `environment`, not both.
    """


class SecretsInContainer(Invalid):
    """Work in a container image is handed no secrets yet.

    Leave out the image, or the secrets.
    """


class SecretUnknown(Unknown):
    """Your organisation keeps no secret of that name."""


class SecretMissing(Refusal):
    """The work asks for secrets that your organisation does not keep: `secrets` names them.

    Set each first: `offpeak secrets set NAME`.
    """


class TooManySecrets(Refusal):
    """Your organisation keeps as many secrets as it may.

    Remove those that nothing uses any more (`offpeak secrets list` says which are used).
    """

    status = 413


def secret_id_of(tenant_id: TenantId | UUID, name: str) -> UUID:
    """Return the id of a secret: the same for a name that was removed and set again."""
    return uuid5(tenant_id, f"secret {name}")


def need_name(name: str) -> None:
    """Refuse what can be no name.

    Raises: SecretNameUnfit.
    """
    if not _NAME.fullmatch(name):
        raise SecretNameUnfit(name=name[:NAME_LENGTH_MAX])


def need_named(
    secrets: Sequence[str], variables: Sequence[str], environment: Collection[str]
) -> None:
    """Refuse names of secrets that cannot be handed to work. environment: its own variables.

    Raises: SecretsUnclear, SecretNameUnfit.
    """
    if len(secrets) > NAMED_MAX:
        raise SecretsUnclear(secrets=len(secrets), secrets_max=NAMED_MAX)
    for name in secrets:
        need_name(name)
    twice = len(set(secrets)) < len(secrets) or len(set(variables)) < len(variables)
    if twice or not set(variables) <= set(secrets) or set(variables) & set(environment):
        raise SecretsUnclear(secrets=list(secrets))


def need_kept(secret: Secret | None, *, name: str) -> None:
    """Refuse work that names a secret which is not kept.

    Raises: SecretMissing.
    """
    if secret is None or not secret.is_kept:
        raise SecretMissing(secrets=[name])


def value_bytes(value: str) -> bytes:
    """Return a value as it is kept. No refusal quotes it.

    Raises: SecretValueUnfit.
    """
    try:
        written = value.encode()
    except UnicodeEncodeError:
        raise SecretValueUnfit() from None
    if not 0 < len(written) <= VALUE_BYTES_MAX or b"\0" in written:
        raise SecretValueUnfit(bytes=len(written))
    return written


def need_room(kept: Collection[str], name: str) -> None:
    """Refuse one more than an organisation may keep; kept: the names of those there are.

    Raises: TooManySecrets.
    """
    if name not in kept and len(kept) >= SECRETS_MAX:
        raise TooManySecrets(secrets_max=SECRETS_MAX)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as its stream tells it. version: of its newest value, which may be gone."""

    STREAM: ClassVar[str] = "secret"

    secret_id: UUID
    name: str
    version: int
    is_kept: bool

    @classmethod
    def evolve(cls, state: Secret | None, event: SecretEvent, /) -> Secret:
        """Return the secret after `event`."""
        match event:
            case SecretSet():
                return cls(event.secret_id, event.secret, event.version, is_kept=True)
            case SecretRemoved():
                assert state is not None
                return replace(state, is_kept=False)
            case _:
                assert_never(event)


DELIVERIES_MAX = 100
"""For one lease on one host. An agent asks once for each of its starts."""


class TooManyDeliveries(Refusal):
    """The secrets of that lease were asked for too often on this host."""


class LeaseNotToRun(Refusal):
    """No lease of that id is to run on this host, or its work names no secrets."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How often the secrets of one lease were handed to one host."""

    STREAM: ClassVar[str] = "delivery"

    times: int

    @classmethod
    def evolve(cls, state: Delivery | None, event: DeliveryEvent, /) -> Delivery:
        """Return the delivery after `event`."""
        return cls(1 if state is None else state.times + 1)


def delivery_id_of(lease_id: LeaseId, host_id: HostId) -> UUID:
    """Return the id of what is handed to a host for a lease."""
    return uuid5(lease_id, f"secrets {host_id}")


def deliver(delivery: Delivery | None, delivered: SecretsDelivered) -> list[SecretsDelivered]:
    """Decide to hand a lease's secrets to its host.

    Raises: TooManyDeliveries.
    """
    if delivery is not None and delivery.times >= DELIVERIES_MAX:
        raise TooManyDeliveries(deliveries_max=DELIVERIES_MAX)
    return [delivered]


def next_version(secret: Secret | None) -> int:
    """Return the version of the next value: none is used twice, removed or not."""
    return 1 if secret is None else secret.version + 1


def give_value(
    secret: Secret | None,
    *,
    tenant_id: TenantId,
    name: str,
    version: int,
    user_id: UserId | None,
    now: datetime,
) -> list[SecretSet]:
    """Decide on a new value, whose version was taken from the same secret."""
    assert version == next_version(secret), "values of one secret are set one after the other"
    secret_id = secret_id_of(tenant_id, name)
    return [
        SecretSet(
            secret_id=secret_id,
            tenant_id=tenant_id,
            secret=name,
            version=version,
            user_id=user_id,
            at=now,
        )
    ]


def remove(
    secret: Secret | None,
    *,
    tenant_id: TenantId,
    name: str,
    user_id: UserId | None,
    now: datetime,
) -> list[SecretRemoved]:
    """Decide to keep a secret no longer.

    Raises: SecretUnknown.
    """
    if secret is None or not secret.is_kept:
        raise SecretUnknown(name=name[:NAME_LENGTH_MAX])
    removed = SecretRemoved(
        secret_id=secret.secret_id, tenant_id=tenant_id, secret=name, user_id=user_id, at=now
    )
    return [removed]
