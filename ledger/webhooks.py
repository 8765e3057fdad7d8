"""An organisation's webhooks: set up, given a new secret, tried, switched on again, removed.

No events: where messages go is a setting. Secrets are sealed as those of work are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4, uuid5

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.deliveries import (
    OVERLAP,
    SECRET_BYTES,
    WEBHOOKS_MAX,
    DeliveryUnknown,
    TooManyWebhooks,
    WebhookOff,
    WebhookUnknown,
    need_url,
    write_secret,
)
from ledger.domain.notices import TOPICS, TopicUnknown
from ledger.models import AttemptRow, DeliveryRow, WebhookRow
from ledger.vault import Sealed, Vault, VaultLocked, default_vault

TEST_TITLE = "A test of this webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookMade:
    """A webhook with its signing secret, which is shown this once."""

    webhook_id: UUID
    secret: str = field(repr=False)


def private_allowed() -> bool:
    """Tell if webhooks may lead into the market's own network."""
    return settings.ENV.webhooks == "private"


def webhooks(actor: Actor) -> QuerySet[WebhookRow]:
    """Return the webhooks of the actor's organisation.

    Raises: RoleMissing.
    """
    actor.need("operator")
    rows = visible(actor, WebhookRow).filter(tenant_id=actor.tenant_id)
    return rows.order_by("created_at", "webhook_id")


def webhook(actor: Actor, webhook_id: UUID) -> WebhookRow:
    """Return one of them.

    Raises: RoleMissing, WebhookUnknown.
    """
    found = webhooks(actor).filter(pk=webhook_id).first()
    if found is None:
        raise WebhookUnknown(webhook_id=webhook_id)
    return found


def add_webhook(
    actor: Actor, *, webhook_id: UUID, url: str, topics: Sequence[str], now: datetime
) -> WebhookMade:
    """Post the organisation's notices to an address from now on. topics: empty means all.

    Raises: RoleMissing, UrlUnfit, TopicUnknown, TooManyWebhooks.
    """
    actor.need("operator")
    if set(topics) - set(TOPICS):
        raise TopicUnknown(known=sorted(TOPICS))
    need_url(url, private=private_allowed())
    secret = write_secret(os.urandom(SECRET_BYTES))
    sealed = default_vault().seal(label_of(actor.tenant_id, webhook_id), secret.encode())
    with transaction.atomic():
        _alone(actor.tenant_id)
        if WebhookRow.objects.filter(tenant_id=actor.tenant_id).count() >= WEBHOOKS_MAX:
            raise TooManyWebhooks(webhooks_max=WEBHOOKS_MAX)
        WebhookRow.objects.create(
            webhook_id=webhook_id,
            tenant_id=actor.tenant_id,
            url=url,
            topics=sorted(set(topics)),
            created_at=now,
            created_by=actor.user_id,
            master=sealed.master,
            key=sealed.key,
            value=sealed.value,
        )
    return WebhookMade(webhook_id=webhook_id, secret=secret)


def remove_webhook(actor: Actor, webhook_id: UUID) -> None:
    """Post nothing to it any more, and forget what was posted.

    Raises: RoleMissing, WebhookUnknown.
    """
    row = webhook(actor, webhook_id)
    with transaction.atomic():
        sent = DeliveryRow.objects.filter(webhook_id=row.webhook_id)
        AttemptRow.objects.filter(delivery_id__in=sent.values("delivery_id")).delete()
        sent.delete()
        row.delete()


def rotate_secret(actor: Actor, webhook_id: UUID, *, now: datetime) -> WebhookMade:
    """Make a new signing secret; the one before signs beside it for a day.

    Raises: RoleMissing, WebhookUnknown.
    """
    with transaction.atomic():
        row = webhook(actor, webhook_id)
        _alone(actor.tenant_id)
        row.refresh_from_db()
        secret = write_secret(os.urandom(SECRET_BYTES))
        sealed = default_vault().seal(label_of(row.tenant_id, webhook_id), secret.encode())
        row.old_master, row.old_key, row.old_value = row.master, row.key, row.value
        row.old_until = now + OVERLAP
        row.master, row.key, row.value = sealed.master, sealed.key, sealed.value
        row.save()
    return WebhookMade(webhook_id=webhook_id, secret=secret)


def switch_on(actor: Actor, webhook_id: UUID) -> None:
    """Post to a webhook again that was switched off, or that is left alone for a while.

    Raises: RoleMissing, WebhookUnknown.
    """
    row = webhook(actor, webhook_id)
    WebhookRow.objects.filter(pk=row.pk).update(
        off_at=None, off_reason="", failures=0, failing_since=None, rests_until=None
    )


def send_test(actor: Actor, webhook_id: UUID, *, now: datetime) -> UUID:
    """Post a message that says nothing, so that one sees how it arrives; return its id.

    Raises: RoleMissing, WebhookUnknown, WebhookOff.
    """
    row = webhook(actor, webhook_id)
    if row.off_at is not None:
        raise WebhookOff(reason=row.off_reason)
    delivery_id = uuid4()
    body = {
        "type": "notice.test",
        "timestamp": now.isoformat(),
        "data": {"title": TEST_TITLE, "body": "Nothing happened.", "link": "", "facts": {}},
    }
    DeliveryRow.objects.create(
        delivery_id=delivery_id,
        tenant_id=row.tenant_id,
        webhook_id=webhook_id,
        receiver=str(webhook_id),
        topic="test",
        title=TEST_TITLE,
        body=msgspec.json.encode(body).decode(),
        due_at=now,
        created_at=now,
    )
    WebhookRow.objects.filter(pk=webhook_id).update(rests_until=None)
    return delivery_id


def deliveries(actor: Actor, webhook_id: UUID) -> QuerySet[DeliveryRow]:
    """Return what was posted to a webhook or waits, the newest first.

    Raises: RoleMissing, WebhookUnknown.
    """
    row = webhook(actor, webhook_id)
    mine = visible(actor, DeliveryRow).filter(webhook_id=row.webhook_id)
    return mine.order_by("-created_at", "delivery_id")


def attempts(delivery_ids: Sequence[UUID]) -> dict[UUID, list[AttemptRow]]:
    """Return the attempts of deliveries that the actor may see, in their order."""
    found: dict[UUID, list[AttemptRow]] = {each: [] for each in delivery_ids}
    for row in AttemptRow.objects.filter(delivery_id__in=delivery_ids).order_by("at", "number"):
        found[row.delivery_id].append(row)
    return found


def send_again(actor: Actor, webhook_id: UUID, delivery_id: UUID, *, now: datetime) -> None:
    """Post a message once more, under the same id.

    Raises: RoleMissing, WebhookUnknown, DeliveryUnknown, WebhookOff.
    """
    row = webhook(actor, webhook_id)
    if row.off_at is not None:
        raise WebhookOff(reason=row.off_reason)
    found = DeliveryRow.objects.filter(pk=delivery_id, webhook_id=row.webhook_id)
    if not found.update(state="waiting", attempts=0, due_at=now, ended_at=None):
        raise DeliveryUnknown(delivery_id=delivery_id)
    WebhookRow.objects.filter(pk=webhook_id).update(rests_until=None)


def secrets_of(row: WebhookRow, vault: Vault, *, now: datetime) -> tuple[str, ...]:
    """Return what a message is signed with now: the newest secret first.

    Raises: VaultLocked.
    """
    label = label_of(row.tenant_id, row.webhook_id)
    sealed = [Sealed(row.master, bytes(row.key), bytes(row.value))]
    if row.old_until is not None and now < row.old_until:
        assert row.old_key is not None and row.old_value is not None
        sealed.append(Sealed(row.old_master, bytes(row.old_key), bytes(row.old_value)))
    return tuple(vault.open(label, each).decode() for each in sealed)


def rewrap_webhooks(vault: Vault) -> tuple[int, int]:
    """Wrap every secret with the installation's current key; return how many, and how many not.

    A secret that was replaced is let go of rather than wrapped anew where it opens no more.
    """
    done = locked = 0
    for webhook_id in WebhookRow.objects.values_list("webhook_id", flat=True):
        with transaction.atomic():
            row = WebhookRow.objects.select_for_update().filter(pk=webhook_id).first()
            if row is None:
                continue
            label = label_of(row.tenant_id, row.webhook_id)
            try:
                new = vault.rewrap(label, Sealed(row.master, bytes(row.key), bytes(row.value)))
            except VaultLocked:
                locked += 1
                continue
            row.master, row.key = new.master, new.key
            if row.old_key is not None and row.old_value is not None:
                old = Sealed(row.old_master, bytes(row.old_key), bytes(row.old_value))
                try:
                    kept = vault.rewrap(label, old)
                    row.old_master, row.old_key = kept.master, kept.key
                except VaultLocked:
                    row.old_until = None
            row.save()
            done += 1
    return done, locked


def label_of(tenant_id: UUID, webhook_id: UUID) -> bytes:
    """Return what a signing secret is sealed under: whose it is, and of which webhook."""
    return f"webhook:{tenant_id}:{webhook_id}".encode()


def delivery_id_of(notice_id: UUID, receiver: UUID) -> UUID:
    """Return the id of a notice's message to a webhook or a person: always the same."""
    return uuid5(notice_id, f"to:{receiver}")


def _alone(tenant_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('webhooks ' || %s, 0))", [str(tenant_id)]
        )
