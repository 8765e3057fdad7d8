"""A person's inbox over HTTP, and how they want to be told."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import inbox, queries
from ledger.digests import digest_time, set_digest_time
from ledger.domain.notice_events import Topic
from ledger.domain.notices import TOPICS
from ledger.rest import Body, CountField, Endpoint, MomentField, TextField

NEWEST_FIRST = ("-position", "inbox_id")


class NoticeShape(serializers.Serializer[Any]):
    """A notice. facts: the same for programs. read_at: when you read it; null: not yet."""

    notice_id = serializers.UUIDField()
    topic = serializers.CharField()
    title = serializers.CharField()
    body = serializers.CharField()
    link = serializers.CharField(allow_blank=True)
    facts = serializers.DictField(child=serializers.CharField())
    subscriber_id = serializers.UUIDField(allow_null=True)
    at = MomentField()
    read_at = MomentField(allow_null=True)


class AskRead(Body):
    """Which notices you have read; without `notice_ids`: all, or all of a topic."""

    notice_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=500, allow_empty=False
    )
    topic = serializers.ChoiceField(sorted(TOPICS), required=False)


class ReadShape(serializers.Serializer[Any]):
    """unread: how many are left, counted up to 100."""

    unread = serializers.IntegerField()


class WishShape(serializers.Serializer[Any]):
    """How you are told of a topic."""

    topic = serializers.CharField()
    title = serializers.CharField()
    about = serializers.CharField()
    in_inbox = serializers.BooleanField()
    by_mail = serializers.BooleanField()
    daily = serializers.BooleanField()


class AskWish(Body):
    """How you want to be told of a topic. daily: its mail is gathered, and comes once a day."""

    in_inbox = serializers.BooleanField()
    by_mail = serializers.BooleanField()
    daily = serializers.BooleanField(required=False)


class DigestTimeShape(serializers.Serializer[Any]):
    """At which hour your daily mail comes, in which zone."""

    hour = serializers.IntegerField()
    zone = serializers.CharField()


class AskDigestTime(Body):
    """At which hour your daily mail shall come, from 0 to 23, in a zone such as Europe/Berlin."""

    hour = CountField()
    zone = TextField()


class Notices(Endpoint):
    """Your inbox in this organisation."""

    scopes = {"GET": "notices:read"}
    reads = ("ledger.notices",)

    @extend_schema(
        responses=NoticeShape(many=True),
        parameters=[
            OpenApiParameter("topic", OpenApiTypes.STR, enum=sorted(TOPICS)),
            OpenApiParameter("unread", OpenApiTypes.BOOL, description="Only what is not read."),
        ],
    )
    def get(self, request: Request) -> Response:
        """List what you were told, the newest first."""
        asked = request.query_params
        rows = queries.inbox(
            self.actor,
            topic=asked.get("topic", ""),
            unread=asked.get("unread", "").lower() in ("true", "1"),
        )
        return self.page(rows, NoticeShape, NEWEST_FIRST)


class NoticesRead(Endpoint):
    """What of your inbox you have read."""

    scopes = {"POST": "notices:write"}
    reads = ("ledger.notices",)

    @extend_schema(request=AskRead, responses=ReadShape)
    def post(self, request: Request) -> Response:
        """Mark notices as read."""
        asked, now = self.body(AskRead), timezone.now()
        for notice_id in asked.get("notice_ids", ()):
            inbox.mark_read(self.actor, notice_id, now=now)
        if "notice_ids" not in asked:
            inbox.mark_all_read(self.actor, topic=asked.get("topic", ""), now=now)
        return Response({"unread": queries.unread_count(self.actor)})


class NoticeDetail(Endpoint):
    """One notice of your inbox."""

    scopes = {"GET": "notices:read"}
    reads = ("ledger.notices",)

    @extend_schema(responses=NoticeShape)
    def get(self, request: Request, notice_id: UUID) -> Response:
        """Show it. That does not mark it as read."""
        row = queries.notice(self.actor, notice_id)
        row.read_at = queries.read_moments([row.inbox_id]).get(row.inbox_id)
        return Response(NoticeShape(row).data)


class Wishes(Endpoint):
    """How you are told of each topic."""

    scopes = {"GET": "notices:read"}

    @extend_schema(responses=WishShape(many=True))
    def get(self, request: Request) -> Response:
        """List all topics."""
        found = queries.wishes(self.actor.need_person())
        return self.listed([_shown(topic, wish) for topic, wish in found.items()], ("topic",))


class WishOfTopic(Endpoint):
    """How you are told of one topic."""

    scopes = {"PUT": "notices:write"}

    @extend_schema(request=AskWish, responses=WishShape)
    def put(self, request: Request, topic: str) -> Response:
        """Set it, for all organisations that you act for."""
        asked, known = self.body(AskWish), cast(Topic, topic)
        inbox.wish(self.actor, known, **asked, now=timezone.now())
        return Response(_shown(known, queries.wishes(self.actor.need_person())[known]))


class DigestTime(Endpoint):
    """When your daily mail comes."""

    scopes = {"GET": "notices:read", "PUT": "notices:write"}

    @extend_schema(responses=DigestTimeShape)
    def get(self, request: Request) -> Response:
        """Tell at which hour."""
        hour, zone = digest_time(self.actor.need_person())
        return Response({"hour": hour, "zone": zone})

    @extend_schema(request=AskDigestTime, responses=DigestTimeShape)
    def put(self, request: Request) -> Response:
        """Set it, for what is gathered from now on."""
        asked = self.body(AskDigestTime)
        set_digest_time(self.actor, **asked, now=timezone.now())
        return Response(asked)


def _shown(topic: Topic, wish: queries.Wish) -> dict[str, Any]:
    terms = TOPICS[topic]
    return {
        "topic": topic,
        "title": terms.title,
        "about": terms.about,
        "in_inbox": wish.in_inbox,
        "by_mail": wish.by_mail,
        "daily": wish.daily,
    }
