"""`Idempotency-Key`: a request repeated with its key is done once and answered alike.

The answer is kept in the transaction of the append where the store shares it, so one cannot be
there without the other. Where it does not, or where the log must not be held up until then, the
key is claimed first; if the process dies between append and answer, the repeat runs the command
again, whose event ids derive from the key, so it records nothing twice and answers the same
position.

A refusal is not kept: it changed nothing, and what stood in its way may be gone (funds, a
window). It is asked again with the same key, but only for the same request: the key stays
claimed by the body it came with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

from django.db import connection, transaction
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from ledger.domain.refusal import Invalid, Refusal
from ledger.models import RequestKey
from ledger.prepared import ask_for_all
from ledger.rest.parsing import BodyUnreadable
from ledger.rest.problems import RETRY_AFTER_SECONDS

KEPT_FOR = timedelta(days=7)
KEY_LENGTH_MAX = 200
HEADERS_KEPT = ("ETag", "Location")

_KEEP = """
INSERT INTO ledger_requestkey
    (tenant_id, route, key, body_sha256, status, answer, headers, kept_at)
VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb, %s)
ON CONFLICT (tenant_id, route, key) DO UPDATE SET
    status = EXCLUDED.status, answer = EXCLUDED.answer, headers = EXCLUDED.headers,
    kept_at = EXCLUDED.kept_at
"""
_FIND = """
SELECT body_sha256, status, answer, headers::text FROM ledger_requestkey
 WHERE tenant_id = %s AND route = %s AND key = %s
"""

_KNOWN_EACH = """
SELECT k.tenant_id, k.route, k.key FROM ledger_requestkey k
  JOIN unnest(%s::uuid[], %s::text[], %s::text[]) AS asked (tenant_id, route, key)
 USING (tenant_id, route, key)
"""
_CLAIM_EACH = """
INSERT INTO ledger_requestkey
    (tenant_id, route, key, body_sha256, status, answer, headers, kept_at)
SELECT asked.*, 0, '', '{}'::jsonb, %s
  FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS asked
ON CONFLICT (tenant_id, route, key) DO NOTHING
RETURNING tenant_id, route, key, set_config('synchronous_commit', 'off', true)
"""
_KEEP_EACH = """
UPDATE ledger_requestkey k SET status = kept.status, answer = kept.answer, kept_at = %s
  FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::int[], %s::text[])
       AS kept (tenant_id, route, key, status, answer)
 WHERE (k.tenant_id, k.route, k.key) = (kept.tenant_id, kept.route, kept.key)
RETURNING set_config('synchronous_commit', 'off', true)
"""

_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class KeyUnreadable(Invalid):
    """An Idempotency-Key is up to 200 printable characters without spaces.

    A random UUID is a good one.
    """


class KeyUsedForAnother(Invalid):
    """That Idempotency-Key was used for a request with another body.

    Take a new key for a new request; repeat a request exactly to have its answer again.
    """


class StillInProgress(Refusal):
    """The first request with that Idempotency-Key is still being worked on.

    Ask again in a moment.
    """


@dataclass(frozen=True, slots=True)
class Asked:
    """What names a request. secret_fields: of the answer, never kept."""

    tenant_id: UUID
    route: str
    key: str
    body_sha256: str
    secret_fields: frozenset[str] = frozenset()

    @property
    def command_id(self) -> UUID:
        """Return the id that every event of this request derives its own from."""
        return uuid5(self.tenant_id, f"{self.route} {self.key}")


class _Kept(NamedTuple):
    """What is kept of a request. status: 0 where its answer is not."""

    body_sha256: str
    status: int
    answer: str
    headers: str


def asked(
    *, tenant_id: UUID, route: str, key: str, path: str, body: bytes, secret_fields: frozenset[str]
) -> Asked:
    """Name a request by its key, and remember what it asks for.

    Raises: KeyUnreadable.
    """
    if not _KEY.fullmatch(key):
        raise KeyUnreadable()
    digest = hashlib.sha256(path.encode() + b"\n" + body).hexdigest()
    return Asked(tenant_id, route[:200], key, digest, secret_fields)


def once(
    request: Asked, handle: Callable[[], Response], *, in_transaction: bool, now: datetime
) -> Response:
    """Answer `request`: by `handle` the first time, by what is kept from then on.

    in_transaction: what `handle` writes commits with the answer; else the key is claimed first.

    Raises: KeyUsedForAnother, StillInProgress, and whatever `handle` raises.
    """
    with _alone(request):
        kept = _find(request)
        if kept is not None:
            if kept.body_sha256 != request.body_sha256:
                raise KeyUsedForAnother()
            if kept.status:
                return _replayed(kept)
        if not in_transaction:
            return _claimed_first(request, handle, now)
        try:
            with transaction.atomic():
                return _keep(request, handle(), now)
        except BodyUnreadable:
            raise
        except Refusal:
            _claim(request, now)
            raise


def _claimed_first(request: Asked, handle: Callable[[], Response], now: datetime) -> Response:
    _claim(request, now)
    try:
        return _keep(request, handle(), now)
    except (APIException, BodyUnreadable):
        # The body was refused before any command ran: the key is free again.
        RequestKey.objects.filter(
            tenant_id=request.tenant_id, route=request.route, key=request.key, status=0
        ).delete()
        raise


def known_each(requests: Sequence[Asked]) -> set[Asked]:
    """Return those whose keys were used before."""
    rows = ask_for_all(_KNOWN_EACH, _columns(requests)) if requests else []
    return _found(requests, rows)


def claim_each(requests: Sequence[Asked], *, now: datetime) -> set[Asked]:
    """Claim the keys of requests that go out in one append; return those that nobody had before.

    Nobody waits for the disk: the append that follows is on it with all that came before.
    """
    digests = [request.body_sha256 for request in requests]
    rows = ask_for_all(_CLAIM_EACH, [now, *_columns(requests), digests]) if requests else []
    return _found(requests, rows)


def keep_each(answers: Sequence[tuple[Asked, int, str]], *, now: datetime) -> None:
    """Keep answers (request, status, JSON) to keys that were claimed.

    One that is lost is made again by the command, which knows its own events.
    """
    if answers:
        requests, statuses, texts = zip(*answers, strict=True)
        ask_for_all(_KEEP_EACH, [now, *_columns(requests), list(statuses), list(texts)])


def _columns(requests: Sequence[Asked]) -> list[list[object]]:
    names = [(request.tenant_id, request.route, request.key) for request in requests]
    return [list(column) for column in zip(*names, strict=True)]


def _found(requests: Sequence[Asked], rows: Sequence[tuple[object, ...]]) -> set[Asked]:
    names = {row[:3] for row in rows}
    return {each for each in requests if (each.tenant_id, each.route, each.key) in names}


@contextmanager
def _alone(request: Asked) -> Iterator[None]:
    """Hold the key for this connection; a second request with it is told to wait."""
    digest = hashlib.sha256(str(request.command_id).encode()).digest()
    lock = int.from_bytes(digest[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [lock])
        row = cursor.fetchone()
    if row is None or not row[0]:
        raise StillInProgress(retry_after_seconds=RETRY_AFTER_SECONDS)
    try:
        yield
    finally:
        # A connection that broke meanwhile has let go of its locks.
        if connection.connection is not None and not connection.connection.closed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [lock])


def _find(request: Asked) -> _Kept | None:
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [request.tenant_id, request.route, request.key])
        row = cursor.fetchone()
    return None if row is None else _Kept(*row)


def _claim(request: Asked, now: datetime) -> None:
    RequestKey.objects.get_or_create(
        tenant_id=request.tenant_id,
        route=request.route,
        key=request.key,
        defaults={"body_sha256": request.body_sha256, "kept_at": now},
    )


def _keep(request: Asked, response: Response, now: datetime) -> Response:
    answer = response.data
    if isinstance(answer, dict):
        answer = {k: v for k, v in answer.items() if k not in request.secret_fields}
    headers = {name: response[name] for name in HEADERS_KEPT if name in response}
    values = (
        request.tenant_id,
        request.route,
        request.key,
        request.body_sha256,
        response.status_code,
        json.dumps(answer, cls=JSONEncoder),
        json.dumps(headers),
        now,
    )
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, values)
    return response


def _replayed(kept: _Kept) -> Response:
    headers = {**json.loads(kept.headers), "Idempotent-Replayed": "true"}
    return Response(json.loads(kept.answer), status=kept.status, headers=headers)


def forget_old_keys(*, now: datetime) -> int:
    """Drop what was kept longer than KEPT_FOR; return how many."""
    dropped, _ = RequestKey.objects.filter(kept_at__lt=now - KEPT_FOR).delete()
    return dropped
