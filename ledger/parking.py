"""Events that a policy could not react to: parked, and tried again with growing pauses.

One fact that cannot be carried out holds up only what is about the same thing (its subject); all
others go on. Those of one subject stay in their order. After SET_ASIDE_AFTER attempts an event is
set aside: it raises an alarm, and is tried again now and then all the same.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import QuerySet

from ledger.domain.redaction import redact
from ledger.eventstore.port import Recorded
from ledger.models import ParkedReaction

PAUSE_MIN, PAUSE_MAX = timedelta(seconds=1), timedelta(minutes=10)
"""Before the second attempt, and at most; each pause is twice the one before."""
SET_ASIDE_AFTER = 5
"""Attempts after which an operator is told: half a minute."""
RETRIED_MAX = 50
"""Parked events that one pass tries again, those first that have been due the longest."""
ERROR_CHARS_MAX = 2_000


def park(
    policy: str, recorded: Recorded, subject: str, *, failure: Exception | None, now: datetime
) -> None:
    """Note an event that could not be reacted to; failure None: it waits behind another."""
    row = ParkedReaction(
        policy=policy,
        position=recorded.position,
        stream=recorded.stream,
        version=recorded.version,
        type=recorded.type,
        subject=subject,
        attempts=0 if failure is None else 1,
        error=_told(failure),
        parked_at=now,
        again_at=None if failure is None else now + PAUSE_MIN,
    )
    ParkedReaction.objects.bulk_create([row], ignore_conflicts=True)


def subjects_parked(policies: Collection[str]) -> set[tuple[str, str]]:
    """Return policy and subject of all that is parked for some policies."""
    rows = ParkedReaction.objects.filter(policy__in=policies)
    return set(rows.values_list("policy", "subject"))


def due(policies: Collection[str], *, now: datetime) -> list[ParkedReaction]:
    """Return what is to be tried again, that which has been due the longest first."""
    rows = ParkedReaction.objects.filter(policy__in=policies, again_at__lte=now)
    return list(rows.order_by("again_at", "position")[:RETRIED_MAX])


def failed_again(row: ParkedReaction, failure: Exception, *, now: datetime) -> None:
    """Note that an event could not be reacted to once more."""
    pause = min(PAUSE_MAX, PAUSE_MIN * 2 ** min(row.attempts, 20))
    row.attempts, row.error, row.again_at = row.attempts + 1, _told(failure), now + pause
    row.save(update_fields=["attempts", "error", "again_at"])


def carried_out(row: ParkedReaction, *, now: datetime) -> ParkedReaction | None:
    """Forget an event that was reacted to; return the next of its subject, which is due now."""
    row.delete()
    of_subject = ParkedReaction.objects.filter(policy=row.policy, subject=row.subject)
    following = of_subject.order_by("position").first()
    if following is not None and following.again_at is None:
        following.again_at = now
        following.save(update_fields=["again_at"])
    return following


def parked() -> QuerySet[ParkedReaction]:
    """Return all that is parked, the oldest first."""
    return ParkedReaction.objects.order_by("parked_at", "position")


def set_aside() -> QuerySet[ParkedReaction]:
    """Return what has failed so often that somebody should look, the oldest first."""
    return parked().filter(attempts__gte=SET_ASIDE_AFTER)


def try_again(row_id: int, *, now: datetime) -> bool:
    """Let a parked event be tried at once, whatever its pause; tell if there is such a one."""
    rows = ParkedReaction.objects.filter(pk=row_id, again_at__isnull=False)
    return rows.update(again_at=now) == 1


def _told(failure: Exception | None) -> str:
    if failure is None:
        return ""
    return redact(f"{type(failure).__name__}: {failure}")[:ERROR_CHARS_MAX]
