"""An organisation's webhooks over HTTP: set up, tried, given new secrets, and what was sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import webhooks
from ledger.domain.deliveries import URL_LENGTH_MAX
from ledger.domain.notices import TOPICS
from ledger.models import AttemptRow, DeliveryRow
from ledger.rest import Body, Endpoint, MomentField, TextField, paginate


class AskWebhook(Body):
    """Where to post notices. topics: of what; without: of everything."""

    url = TextField(max_length=URL_LENGTH_MAX)
    topics = serializers.ListField(
        child=TextField(max_length=16), required=False, max_length=len(TOPICS)
    )


class WebhookShape(serializers.Serializer[Any]):
    """A webhook, without its secret. topics: empty means all. failures: in a row.

    old_secret_until: until when the secret before signs, too. off_at: since when it is switched
    off, because of off_reason.
    """

    webhook_id = serializers.UUIDField()
    url = serializers.CharField()
    topics = serializers.ListField(child=serializers.CharField())
    created_at = MomentField()
    failures = serializers.IntegerField()
    failing_since = MomentField(allow_null=True)
    old_secret_until = MomentField(allow_null=True, source="old_until")
    off_at = MomentField(allow_null=True)
    off_reason = serializers.CharField(allow_blank=True)


class WebhookSecretShape(serializers.Serializer[Any]):
    """secret: shown this once; a repeat with the same key does not get it again."""

    webhook_id = serializers.UUIDField()
    secret = serializers.CharField(required=False)


class WebhookIdShape(serializers.Serializer[Any]):
    """Which webhook it was."""

    webhook_id = serializers.UUIDField()


class DeliveryIdShape(serializers.Serializer[Any]):
    """The message, as the receiver finds it in the header `webhook-id`."""

    delivery_id = serializers.UUIDField()


class DeliveryAttemptShape(serializers.Serializer[Any]):
    """One attempt. status: as the receiver answered; null: it did not. words: of its answer the
    beginning, or what went wrong."""

    number = serializers.IntegerField()
    at = MomentField()
    millis = serializers.IntegerField()
    is_through = serializers.BooleanField()
    status = serializers.IntegerField(allow_null=True)
    words = serializers.CharField(allow_blank=True)


class DeliveryShape(serializers.Serializer[Any]):
    """A message. state: waiting, through or failed. due_at: when it is tried, if it waits."""

    delivery_id = serializers.UUIDField()
    notice_id = serializers.UUIDField(allow_null=True)
    topic = serializers.CharField()
    title = serializers.CharField()
    state = serializers.CharField()
    created_at = MomentField()
    due_at = MomentField()
    ended_at = MomentField(allow_null=True)
    attempts = DeliveryAttemptShape(many=True)


class Webhooks(Endpoint):
    """The webhooks of your organisation; its operators have them."""

    scopes = {"GET": "admin", "POST": "admin"}
    secret_fields = frozenset({"secret"})

    @extend_schema(responses=WebhookShape(many=True))
    def get(self, request: Request) -> Response:
        """List them."""
        rows = webhooks.webhooks(self.actor)
        return self.page(rows, WebhookShape, ("created_at", "webhook_id"))

    @extend_schema(request=AskWebhook, responses={201: WebhookSecretShape})
    def post(self, request: Request) -> Response:
        """Set one up. `secret` is what its messages are signed with."""
        asked = self.body(AskWebhook)
        made = webhooks.add_webhook(
            self.actor,
            webhook_id=uuid5(self.command_id, "webhook"),
            url=asked["url"],
            topics=asked.get("topics", []),
            now=timezone.now(),
        )
        return Response({"webhook_id": made.webhook_id, "secret": made.secret}, status=201)


class WebhookDetail(Endpoint):
    """One webhook."""

    scopes = {"GET": "admin", "DELETE": "admin"}

    @extend_schema(responses=WebhookShape)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Show it, without its secret."""
        return Response(WebhookShape(webhooks.webhook(self.actor, webhook_id)).data)

    @extend_schema(responses=WebhookIdShape)
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Remove it with the log of what it was sent."""
        webhooks.remove_webhook(self.actor, webhook_id)
        return Response({"webhook_id": webhook_id})


class WebhookSecret(Endpoint):
    """The signing secret of a webhook."""

    scopes = {"POST": "admin"}
    secret_fields = frozenset({"secret"})

    @extend_schema(request=None, responses=WebhookSecretShape)
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Make a new one; the one before signs beside it for 24 hours."""
        made = webhooks.rotate_secret(self.actor, webhook_id, now=timezone.now())
        return Response({"webhook_id": made.webhook_id, "secret": made.secret})


class WebhookTest(Endpoint):
    """A message that says nothing."""

    scopes = {"POST": "admin"}

    @extend_schema(request=None, responses=DeliveryIdShape)
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Post one, to see how it arrives."""
        sent = webhooks.send_test(self.actor, webhook_id, now=timezone.now())
        return Response({"delivery_id": sent})


class WebhookOn(Endpoint):
    """A webhook that was switched off, or that is left alone for a while."""

    scopes = {"POST": "admin"}

    @extend_schema(request=None, responses=WebhookIdShape)
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Post to it again."""
        webhooks.switch_on(self.actor, webhook_id)
        return Response({"webhook_id": webhook_id})


class Deliveries(Endpoint):
    """What was posted to a webhook, or waits."""

    scopes = {"GET": "admin"}

    @extend_schema(responses=DeliveryShape(many=True))
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """List messages of the last thirty days with their attempts, the newest first."""
        rows = webhooks.deliveries(self.actor, webhook_id)
        order = ("-created_at", "delivery_id")
        page = paginate(rows, lambda row: row, order, query=request.query_params)
        tried = webhooks.attempts([row.delivery_id for row in page["data"]])
        page["data"] = [_shown(row, tried[row.delivery_id]) for row in page["data"]]
        return Response(page)


class DeliveryAgain(Endpoint):
    """One message once more."""

    scopes = {"POST": "admin"}

    @extend_schema(request=None, responses=DeliveryIdShape)
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Post it again, under the same id."""
        webhooks.send_again(self.actor, webhook_id, delivery_id, now=timezone.now())
        return Response({"delivery_id": delivery_id})


def _shown(row: DeliveryRow, tried: list[AttemptRow]) -> Any:
    return DeliveryShape({**vars(row), "attempts": tried}).data
