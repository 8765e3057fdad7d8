"""Daily mails: what a person wants once a day is gathered, and mailed at an hour of theirs.

What is gathered and the mail that has it are written in one transaction each: a process that dies
in between has either told all of it or will. A notice that comes again is known by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID, uuid5

from django.db import transaction

from ledger.access import Actor
from ledger.domain.deliveries import KEPT
from ledger.domain.digest_times import HOUR_USUAL, check_digest_time, next_digest
from ledger.domain.notice_events import NoticeGiven
from ledger.models import DeliveryRow, DigestItemRow, DigestTimeRow

MAILS_AT_ONCE = 100
LISTED_MAX = 100
"""Notices in one mail; of more it says how many."""
FORGOTTEN_AT_ONCE = 1_000


def set_digest_time(actor: Actor, *, hour: int, zone: str, now: datetime) -> None:
    """Set at which hour the actor's daily mail comes, for what is gathered from now on.

    Raises: PersonNeeded, DigestTimeUnclear.
    """
    user_id = actor.need_person()
    check_digest_time(hour, zone)
    DigestTimeRow.objects.update_or_create(
        user_id=user_id, defaults={"hour": hour, "zone": zone, "changed_at": now}
    )


def digest_time(user_id: UUID) -> tuple[int, str]:
    """Return at which hour a person's daily mail comes, and in which zone."""
    row = DigestTimeRow.objects.filter(pk=user_id).first()
    return (HOUR_USUAL, "UTC") if row is None else (row.hour, row.zone)


def gather(given: NoticeGiven, user_ids: Sequence[UUID], *, now: datetime) -> list[DigestItemRow]:
    """Return a notice as it comes with the next daily mail of each of these people."""
    times: Mapping[UUID, tuple[int, str]] = {
        row.user_id: (row.hour, row.zone)
        for row in DigestTimeRow.objects.filter(user_id__in=user_ids)
    }
    items = []
    for user_id in user_ids:
        hour, zone = times.get(user_id, (HOUR_USUAL, "UTC"))
        items.append(
            DigestItemRow(
                item_id=uuid5(given.notice_id, f"daily:{user_id}"),
                user_id=user_id,
                tenant_id=given.tenant_id,
                topic=given.topic,
                title=given.title,
                body=given.body,
                link=given.link,
                at=given.at,
                due_at=next_digest(now, hour=hour, zone=zone),
                created_at=now,
            )
        )
    return items


def mail_digests(*, now: datetime, receiver: str, base_url: str) -> int:
    """Put the daily mails that are due into the outbox; return how many.

    receiver: whose turns they take, that of all mail.
    """
    due = DigestItemRow.objects.filter(delivery_id=None, due_at__lte=now)
    people = due.order_by("user_id").values_list("user_id", flat=True).distinct()
    return sum(
        _mail(user_id, now=now, receiver=receiver, base_url=base_url)
        for user_id in list(people[:MAILS_AT_ONCE])
    )


@transaction.atomic
def _mail(user_id: UUID, *, now: datetime, receiver: str, base_url: str) -> int:
    due = DigestItemRow.objects.select_for_update().filter(
        user_id=user_id, delivery_id=None, due_at__lte=now
    )
    items = list(due.order_by("at", "item_id"))
    if not items:
        return 0
    delivery_id = uuid5(items[0].item_id, "digest")
    said = "1 notice" if len(items) == 1 else f"{len(items)} notices"
    DeliveryRow.objects.create(
        delivery_id=delivery_id,
        tenant_id=items[0].tenant_id,
        user_id=user_id,
        receiver=receiver,
        topic="",
        title=f"Offpeak: {said} of the last day",
        body=_text(items, base_url),
        due_at=now,
        created_at=now,
    )
    _taken(items, delivery_id)
    return 1


def _taken(items: Sequence[DigestItemRow], delivery_id: UUID) -> None:
    keys = [item.item_id for item in items]
    DigestItemRow.objects.filter(item_id__in=keys).update(delivery_id=delivery_id)


def _text(items: Sequence[DigestItemRow], base_url: str) -> str:
    base = base_url.rstrip("/")
    lines: list[str] = []
    for item in items[:LISTED_MAX]:
        lines += [f"{item.at:%d %B %H:%M} UTC: {item.title}", item.body]
        if item.link and base:
            lines.append(f"{base}{item.link}")
        lines.append("")
    if len(items) > LISTED_MAX:
        lines += [f"{len(items) - LISTED_MAX} more are in your inbox.", ""]
    where = f"{base}/settings/notifications" if base else "the page Notifications of your settings"
    return "\n".join([*lines, "--", f"When and how Offpeak tells you, you choose at {where}"])


def forget_digests(*, now: datetime) -> int:
    """Drop what was mailed long ago; return how many notices that were."""
    old = DigestItemRow.objects.filter(created_at__lt=now - KEPT).exclude(delivery_id=None)
    found = list(old.values_list("item_id", flat=True)[:FORGOTTEN_AT_ONCE])
    if found:
        DigestItemRow.objects.filter(item_id__in=found).delete()
    return len(found)
