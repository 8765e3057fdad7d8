"""Logs of leased work over HTTP: which there are, and what is in one.

Here a log is answered as it is at the moment. `config.web.work_logs` stands before this, asks it
who may read what, and sends the bytes itself, also live: so no thread is held by who reads slowly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.domain.refusal import Invalid, Unknown
from ledger.rest import Endpoint, MomentField
from marketplace.logs import Reader, default_logs, logs_of
from marketplace.models.leases import LeaseRow
from marketplace.models.logs import LogRow
from marketplace.queries import leases as queries
from marketplace.storage import default_storage
from marketplace.storage.logs import LogKey

STREAMS = ("stdout", "stderr")
PIECE_BYTES = 256 * 1024
OFFSET_MAX = 2**53
ATTEMPT_MAX = 10_000
OFFSET = {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX}
ATTEMPT = {"type": "integer", "minimum": 1, "maximum": ATTEMPT_MAX}


class LogUnknown(Unknown):
    """There is no such log: a lease has `stdout` and `stderr`, on each of its hosts."""


class LogPlaceUnreadable(Invalid):
    """`offset` and `attempt` are whole numbers, `host` is a host's id, `follow` true or false."""


class LogShape(serializers.Serializer[Any]):
    """One log. size_bytes: where it ends, what was dropped of it included.

    is_complete: its host said where it ends, and all up to there is here, but for what was dropped.
    closed_at: from then on it is in storage; kept_until: when it is forgotten.
    """

    host_id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    stream = serializers.CharField()
    size_bytes = serializers.IntegerField()
    dropped_bytes = serializers.IntegerField()
    is_complete = serializers.BooleanField()
    first_at = MomentField()
    last_at = MomentField(allow_null=True)
    closed_at = MomentField(allow_null=True)
    kept_until = MomentField(allow_null=True)


class LeaseLogs(Endpoint):
    """The logs of one lease."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(responses=LogShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List what its work printed, as far as it came."""
        queries.lease(self.actor, lease_id)
        rows: list[LogRow] = list(logs_of(default_logs(), lease_id))
        shown = [dict(LogShape(row).data) for row in rows]
        return self.listed(shown, ("host_id", "attempt", "stream"))


class LeaseLog(Endpoint):
    """One stream of what a lease's work printed."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(
        responses={(200, "text/plain"): OpenApiTypes.STR},
        parameters=[
            OpenApiParameter("offset", OFFSET, description="the first byte wanted"),
            OpenApiParameter("host", UUID, description="of several hosts; else the first"),
            OpenApiParameter(
                "attempt", ATTEMPT, description="which run on that host; else the first"
            ),
            OpenApiParameter(
                "follow", bool, description="of events: wait for what is still to come"
            ),
        ],
    )
    def get(self, request: Request, lease_id: UUID, stream: str) -> HttpResponseBase:
        """Read it from an offset on; as `text/event-stream` also what is still to come.

        Each event's id is the offset after it, its data a JSON string. `dropped` says how many
        bytes are missing, `end` that nothing follows.
        """
        row = queries.lease(self.actor, lease_id)
        key, offset = _place(row, stream, request)
        reader = Reader(default_storage(), default_logs(), key)
        figures = reader.figures(now=timezone.now())
        headers = {
            "Offpeak-Log-Host": str(key.host_id),
            "Offpeak-Log-Reader": _reader(self.actor),
            "Offpeak-Log-Attempt": str(key.attempt),
            "Offpeak-Log-Size": str(figures.size),
            "Offpeak-Log-Dropped": str(figures.dropped),
            "Offpeak-Log-Complete": str(figures.complete).lower(),
            "Content-Disposition": f'attachment; filename="{stream}-{str(lease_id)[:8]}.log"',
        }
        kind = "text/plain; charset=utf-8"
        if request.method == "HEAD":
            return HttpResponse(content_type=kind, headers=headers)
        content = plain(reader, offset, figures.size)
        return StreamingHttpResponse(content, content_type=kind, headers=headers)


def _reader(actor: Actor) -> str:
    """Return who reads, for the server that looks again and again whether they may."""
    return "/".join(str(each or "") for each in (actor.tenant_id, actor.user_id, actor.token_id))


def plain(reader: Reader, offset: int, end: int) -> Iterator[bytes]:
    """Yield a log's bytes up to an offset; a line in the place of what is dropped says so."""
    while offset < end:
        start, data = reader.read(offset, PIECE_BYTES)
        if not data:
            return
        if start > offset:
            yield f"\n[offpeak: {start - offset} bytes are dropped here]\n".encode()
        yield data[: max(0, end - start)]
        offset = start + len(data)


def _place(row: LeaseRow, stream: str, request: Request) -> tuple[LogKey, int]:
    """Return which log is asked for, and from where on.

    Raises: LogUnknown, LogPlaceUnreadable.
    """
    asked = request.query_params
    if asked.get("follow", "true") not in ("true", "false"):
        raise LogPlaceUnreadable()
    try:
        host_id = UUID(asked["host"]) if "host" in asked else row.host_ids[0]
    except ValueError:
        raise LogPlaceUnreadable() from None
    offset = _whole(asked.get("offset", "0"), 0, OFFSET_MAX)
    attempt = _whole(asked.get("attempt", "1"), 1, ATTEMPT_MAX)
    if stream not in STREAMS or host_id not in row.host_ids:
        raise LogUnknown()
    return LogKey(row.lease_id, host_id, attempt, stream), offset


def _whole(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and low <= int(text) <= high):
        raise LogPlaceUnreadable()
    return int(text)
