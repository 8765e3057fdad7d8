"""How people reach leased work: what is allowed, and a permit for one connection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Body, CountField, Endpoint, MomentField, TextField
from metering.agent.access.frames import CLIENT_PATH
from metering.domain.access import KEY_LENGTH_MAX, PERMIT_SECONDS, PORT_MAX
from metering.ingest.tunnels import sign
from metering.queries.access import permit_for, reach


class AskAccess(Body):
    """What to connect to: a `shell`, with the public key it is proved by, or a `port`."""

    what = serializers.ChoiceField(choices=["shell", "port"])
    port = CountField(required=False, value_min=1, value_max=PORT_MAX)
    key = TextField(required=False, max_length=KEY_LENGTH_MAX)
    host_id = serializers.UUIDField(required=False)


class ReachShape(serializers.Serializer[Any]):
    """What of a lease can be reached on one of its hosts.

    allowed: `off`, `ports` or `shell`, which has ports as well. host_key: by which a shell there
    proves itself; empty until the first was opened.
    """

    host_id = serializers.UUIDField()
    is_connected = serializers.BooleanField()
    runs = serializers.BooleanField()
    allowed = serializers.CharField()
    connections = serializers.IntegerField()
    host_key = serializers.CharField()


class AccessShape(serializers.Serializer[Any]):
    """What of a lease can be reached; a connection that carries nothing so long is closed."""

    hosts = ReachShape(many=True)
    idle_seconds = serializers.IntegerField()


class PermitShape(serializers.Serializer[Any]):
    """A permit for one connection: the bearer token for a websocket at `path`, for a minute."""

    path = serializers.CharField()
    token = serializers.CharField()
    expires_at = MomentField()
    host_id = serializers.UUIDField()
    idle_seconds = serializers.IntegerField()


class LeaseAccess(Endpoint):
    """Ways into the work of a lease, for its consumer."""

    scopes: ClassVar = {"GET": "leases:read", "POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(responses=AccessShape)
    def get(self, request: Request, lease_id: UUID) -> Response:
        """Tell what can be reached on each of its hosts."""
        said = {
            "hosts": reach(self.actor, lease_id),
            "idle_seconds": settings.ENV.access_idle_seconds,
        }
        return Response(AccessShape(said).data)

    @extend_schema(request=AskAccess, responses=PermitShape)
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Give a permit to connect to one thing; nothing is written, so ask for each anew."""
        asked = self.body(AskAccess)
        permit = permit_for(
            self.actor,
            lease_id,
            what=asked["what"],
            port=asked.get("port"),
            key=asked.get("key"),
            host_id=asked.get("host_id"),
        )
        said = {
            "path": CLIENT_PATH,
            "token": sign(permit),
            "expires_at": timezone.now() + timedelta(seconds=PERMIT_SECONDS),
            "host_id": permit.host_id,
            "idle_seconds": settings.ENV.access_idle_seconds,
        }
        return Response(PermitShape(said).data)

    def _asked(self) -> None:
        """Remember no answer: a repeat gets a permit of its own."""
        return None
