"""The outbox: notices go out by e-mail and to webhooks, at least once, no receiver behind another.

A pass puts what is new into the outbox, notes what became of messages under way, and hands those
that are due to threads: at most one for each receiver at a time, so that a slow one keeps only its
own waiting. Threads touch no database. Killed between sending and noting, a message is sent again
under the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from uuid import UUID, uuid4

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from ledger import commands, webhooks
from ledger.digests import forget_digests, gather, mail_digests
from ledger.domain.deliveries import (
    FAILING_MAX,
    KEPT,
    REST_SECONDS_MAX,
    STALE_AFTER,
    next_attempt,
    rest,
)
from ledger.domain.ids import TenantId
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.notices import To
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of
from ledger.inviting import can_mail
from ledger.models import AttemptRow, DeliveryRow, DigestItemRow, Person, WebhookRow
from ledger.queries.notices import wishes_of
from ledger.reacting import Reacting
from ledger.senders.port import Message, Outcome, Sender
from ledger.turns import turns_of
from ledger.vault import VaultLocked, default_vault

MAIL = "mail"
"""The receiver that all e-mail shares: one mail server has it."""
UNDER_WAY_MAX = 16
POLICY = "ledger.deliver-notices"
FORGOTTEN_AT_ONCE = 1_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _UnderWay:
    delivery_id: UUID
    webhook_id: UUID | None
    began_at: datetime
    sent: Future[tuple[Outcome, int]]


class Delivering:
    """Carries notices out. senders: by the kind of receiver, `mail` and `webhook`.

    wake: called when a message is through or not, so that the next one waits no longer.
    """

    def __init__(
        self, senders: Mapping[str, Sender], *, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._senders, self._wake = senders, wake
        self._threads = ThreadPoolExecutor(UNDER_WAY_MAX, thread_name_prefix="deliver")
        self._under_way: dict[str, _UnderWay] = {}
        self._reacting: Reacting | None = None
        self._now: datetime | None = None

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Do a pass; return how many messages were new, begun or done with."""
        self._now = now
        if self._reacting is None:
            follower = Policy(name=POLICY, react=self._put_out, on=names_of(NoticeGiven))
            self._reacting = Reacting([follower])
        new = self._reacting.run_once(store)
        ended = self._note_ended(store, now=now)
        daily = mail_digests(now=now, receiver=MAIL, base_url=str(settings.ENV.base_url))
        begun = self._begin(store, now=now)
        forgotten = forget_old(now=now) + forget_digests(now=now)
        return new + ended + begun + daily + forgotten

    @property
    def under_way(self) -> int:
        """Return how many messages are with threads, or not noted yet."""
        return len(self._under_way)

    def wait(self, seconds: float) -> None:
        """Wait until what is under way has ended, for so long at most."""
        for each in list(self._under_way.values()):
            each.sent.exception(timeout=seconds)

    def _put_out(self, recorded: Recorded, store: EventStore) -> None:
        given = recorded.event
        assert isinstance(given, NoticeGiven) and self._now is not None
        put_out(given, now=self._now)

    def _begin(self, store: EventStore, *, now: datetime) -> int:
        free = UNDER_WAY_MAX - len(self._under_way)
        if free <= 0:
            return 0

        def page(behind: tuple[str] | None, limit: int) -> list[tuple[str]]:
            due = _due(now).exclude(receiver__in=list(self._under_way))
            if behind is not None:
                due = due.filter(receiver__gt=behind[0])
            names = due.order_by("receiver").values_list("receiver", flat=True).distinct()
            return [(name,) for name in names[:limit]]

        begun = 0
        for (receiver,) in turns_of(store, "deliveries").take(page, free):
            row = _due(now).filter(receiver=receiver).order_by("due_at", "delivery_id").first()
            if row is not None:
                begun += self._hand_over(row, now=now)
        return begun

    def _hand_over(self, row: DeliveryRow, *, now: datetime) -> int:
        try:
            message = _message(row, now=now)
        except VaultLocked as locked:
            _note(row, Outcome(is_through=False, words=locked.message()), 0, now=now)
            return 1
        if message is None:
            _end(row, "failed", now=now)
            return 1
        sender = self._senders[MAIL if row.receiver == MAIL else "webhook"]
        sent = self._threads.submit(_timed, sender, message)
        self._under_way[row.receiver] = _UnderWay(row.delivery_id, row.webhook_id, now, sent)
        sent.add_done_callback(lambda _: self._wake())
        return 1

    def _note_ended(self, store: EventStore, *, now: datetime) -> int:
        ended = [(name, each) for name, each in self._under_way.items() if each.sent.done()]
        for name, each in ended:
            try:
                outcome, millis = each.sent.result()
            except Exception as failure:  # a sender's fault stays with the one message
                log.error("delivery.fault", receiver=name, exc_info=failure)
                outcome, millis = Outcome(is_through=False, words=type(failure).__name__), 0
            row = DeliveryRow.objects.filter(pk=each.delivery_id).first()
            if row is not None:
                _note(row, outcome, millis, now=now)
                if each.webhook_id is not None:
                    _note_receiver(store, each.webhook_id, outcome, now=now)
            del self._under_way[name]
        return len(ended)


def _timed(sender: Sender, message: Message) -> tuple[Outcome, int]:
    began = perf_counter()
    outcome = sender.send(message)
    return outcome, int((perf_counter() - began) * 1_000)


def _due(now: datetime) -> QuerySet[DeliveryRow]:
    """Return what is to be sent now, without that of receivers that are left alone for a while."""
    resting = WebhookRow.objects.filter(rests_until__gt=now).values("webhook_id")
    waiting = DeliveryRow.objects.filter(state="waiting", due_at__lte=now)
    return waiting.filter(Q(webhook_id=None) | ~Q(webhook_id__in=resting))


def put_out(given: NoticeGiven, *, now: datetime) -> int:
    """Put a notice into the outbox, for each who is to hear of it outside; again: nothing.

    Returns: how many messages that are.
    """
    if given.at < now - STALE_AFTER:
        return 0
    people = _people_of(given)
    rows = [*_to_webhooks(given, now=now), *_to_people(given, people[False], now=now)]
    items = gather(given, [person.id for person in people[True]], now=now)
    with transaction.atomic():
        DeliveryRow.objects.bulk_create(rows, ignore_conflicts=True)
        DigestItemRow.objects.bulk_create(items, ignore_conflicts=True)
    return len(rows) + len(items)


def _to_webhooks(given: NoticeGiven, *, now: datetime) -> Iterable[DeliveryRow]:
    hooks = WebhookRow.objects.filter(tenant_id=given.tenant_id, off_at=None)
    for hook in hooks.filter(created_at__lte=now):
        if hook.topics and given.topic not in hook.topics:
            continue
        yield DeliveryRow(
            delivery_id=webhooks.delivery_id_of(given.notice_id, hook.webhook_id),
            tenant_id=given.tenant_id,
            webhook_id=hook.webhook_id,
            receiver=str(hook.webhook_id),
            notice_id=given.notice_id,
            topic=given.topic,
            title=given.title,
            body=payload(given),
            due_at=now,
            created_at=now,
        )


def _people_of(given: NoticeGiven) -> dict[bool, list[Person]]:
    """Return who wants mail of a notice: at once (False), and with the daily mail (True)."""
    found: dict[bool, list[Person]] = {False: [], True: []}
    if not can_mail() or not given.user_ids:
        return found
    wanted = wishes_of(given.user_ids)
    # An address that only another organisation's link vouches for is nobody's yet.
    proved = Q(vouched_by=None) | Q(vouched_by=given.tenant_id)
    people = Person.objects.filter(proved, pk__in=given.user_ids, is_active=True, is_demo=False)
    for person in people:
        wish = wanted[person.id][given.topic]
        if wish.by_mail:
            found[wish.daily].append(person)
    return found


def _to_people(
    given: NoticeGiven, people: Iterable[Person], *, now: datetime
) -> Iterable[DeliveryRow]:
    for person in people:
        yield DeliveryRow(
            delivery_id=webhooks.delivery_id_of(given.notice_id, person.id),
            tenant_id=given.tenant_id,
            user_id=person.id,
            receiver=MAIL,
            notice_id=given.notice_id,
            topic=given.topic,
            title=given.title,
            body=_mail_text(given),
            due_at=now,
            created_at=now,
        )


def payload(given: NoticeGiven) -> str:
    """Return what is posted of a notice, as JSON."""
    return msgspec.json.encode(
        {
            "type": f"notice.{given.topic}",
            "timestamp": given.at.isoformat(),
            "data": {
                "notice_id": given.notice_id,
                "tenant_id": given.tenant_id,
                "subscriber_id": given.subscriber_id,
                "title": given.title,
                "body": given.body,
                "link": _absolute(given.link),
                "facts": {fact.name: fact.value for fact in given.facts},
            },
        }
    ).decode()


def _mail_text(given: NoticeGiven) -> str:
    lines = [given.body, ""]
    if given.link and settings.ENV.base_url:
        lines += [_absolute(given.link), ""]
    where = _absolute("/settings/notifications") or "the page Notifications in your settings"
    lines += ["--", f"How Offpeak tells you of things, you choose at {where}"]
    return "\n".join(lines)


def _absolute(link: str) -> str:
    base = str(settings.ENV.base_url).rstrip("/")
    return f"{base}{link}" if link else ""


def _message(row: DeliveryRow, *, now: datetime) -> Message | None:
    """Return a message as it is sent; None: its receiver is gone."""
    if row.webhook_id is None:
        assert row.user_id is not None
        person = Person.objects.filter(pk=row.user_id, is_active=True).first()
        if person is None:
            return None
        to, secrets = person.email, tuple[str, ...]()
    else:
        hook = WebhookRow.objects.filter(pk=row.webhook_id, off_at=None).first()
        if hook is None:
            return None
        to, secrets = hook.url, webhooks.secrets_of(hook, default_vault(), now=now)
    return Message(
        message_id=str(row.delivery_id), to=to, title=row.title, body=row.body, secrets=secrets
    )


def _note(row: DeliveryRow, outcome: Outcome, millis: int, *, now: datetime) -> None:
    with transaction.atomic():
        AttemptRow.objects.create(
            attempt_id=uuid4(),
            delivery_id=row.delivery_id,
            number=row.attempts + 1,
            at=now,
            millis=millis,
            is_through=outcome.is_through,
            status=outcome.status,
            words=outcome.words.replace("\0", " ")[:500],
        )
        row.attempts += 1
        if outcome.is_through:
            _end(row, "through", now=now)
            return
        again = next_attempt(row.attempts, now=now)
        if again is None:
            _end(row, "failed", now=now)
        else:
            row.due_at = again
            row.save(update_fields=["attempts", "due_at"])


def _end(row: DeliveryRow, state: str, *, now: datetime) -> None:
    row.state, row.ended_at = state, now
    row.save(update_fields=["attempts", "state", "ended_at"])


def _note_receiver(store: EventStore, webhook_id: UUID, outcome: Outcome, *, now: datetime) -> None:
    hook = WebhookRow.objects.filter(pk=webhook_id).first()
    if hook is None or (outcome.is_through and not hook.failures):
        return
    if outcome.is_through:
        hook.failures, hook.failing_since, hook.rests_until = 0, None, None
    else:
        hook.failures += 1
        hook.failing_since = hook.failing_since or now
        hook.rests_until = rest(hook.failures, now=now)
        if outcome.is_gone:
            hook.off_at, hook.off_reason = now, "Its receiver answered 410 Gone."
        elif now - hook.failing_since >= FAILING_MAX:
            hook.off_at, hook.off_reason = now, f"It failed for {FAILING_MAX.days} days."
    hook.save(update_fields=["failures", "failing_since", "rests_until", "off_at", "off_reason"])
    if hook.off_at == now:
        _tell_off(store, hook, now=now)


def _tell_off(store: EventStore, hook: WebhookRow, *, now: datetime) -> None:
    DeliveryRow.objects.filter(webhook_id=hook.webhook_id, state="waiting").update(
        state="failed", ended_at=now
    )
    host = hook.url.split("/")[2].rpartition("@")[2]
    commands.give_notice(
        store,
        to=To(tenant_id=TenantId(hook.tenant_id)),
        topic="delivery",
        key=f"webhook-off:{hook.webhook_id}:{now.isoformat()}",
        title=f"A webhook to {host} was switched off"[:200],
        body=f"{hook.off_reason} What waited for it was not sent. Switch it on again once its "
        "receiver answers; single messages can be sent again from its log.",
        link="/settings/webhooks",
        facts={"webhook_id": str(hook.webhook_id), "reason": hook.off_reason},
        by=Meta(actor="loop:deliveries"),
        now=now,
    )


def overdue(*, now: datetime) -> int:
    """Return how many messages should have been tried two hours ago: receivers rest for one."""
    late = now - timedelta(seconds=2 * REST_SECONDS_MAX)
    return DeliveryRow.objects.filter(state="waiting", due_at__lt=late).count()


def forget_old(*, now: datetime) -> int:
    """Drop the log of what ended long ago; return how many messages that were."""
    old = DeliveryRow.objects.filter(created_at__lt=now - KEPT).exclude(state="waiting")
    found = list(old.values_list("delivery_id", flat=True)[:FORGOTTEN_AT_ONCE])
    if found:
        AttemptRow.objects.filter(delivery_id__in=found).delete()
        DeliveryRow.objects.filter(delivery_id__in=found).delete()
    return len(found)
