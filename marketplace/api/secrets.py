"""JSON over HTTP for secrets of work: set, listed by name, removed. No value is ever answered."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Body, Endpoint, MomentField, TextField
from ledger.vault import default_vault
from marketplace import secrets
from marketplace.domain.secrets.secret import VALUE_BYTES_MAX
from marketplace.models.secrets import SecretRow
from marketplace.queries import secrets as queries

BY_NAME = ("name", "secret_id")


class AskSecret(Body):
    """A secret's new value: text of up to 32 768 bytes. Blanks and line ends around it count."""

    value = TextField(max_length=VALUE_BYTES_MAX, trim_whitespace=False, write_only=True)


class SecretShape(serializers.Serializer[Any]):
    """A secret, without its value. user_id: who set this version; null: a program.

    used_by: how many bids that wait, or whose lease is not over, name it. delivered_at,
    delivered_lease_id: when the work of which lease was last handed a version of it.
    """

    name = serializers.CharField()
    version = serializers.IntegerField()
    set_at = MomentField()
    user_id = serializers.UUIDField(allow_null=True)
    used_by = serializers.IntegerField()
    delivered_at = MomentField(allow_null=True)
    delivered_lease_id = serializers.UUIDField(allow_null=True)


class SecretWritten(serializers.Serializer[Any]):
    """Which secret was written, its version, and the position to read it at."""

    name = serializers.CharField()
    version = serializers.IntegerField(required=False)
    position = serializers.IntegerField()


class Secrets(Endpoint):
    """The secrets of an organisation."""

    scopes: ClassVar = {"GET": "secrets:read"}
    reads: ClassVar = ("marketplace.secrets", "marketplace.bids")

    @extend_schema(responses=SecretShape(many=True))
    def get(self, request: Request) -> Response:
        """List them by name. Values cannot be read back."""
        uses = queries.uses(self.actor)

        def shown(row: SecretRow) -> Any:
            return SecretShape({**vars(row), "used_by": uses[row.name]}).data

        return self.page(queries.secrets(self.actor), shown, BY_NAME)


class OneSecret(Endpoint):
    """One secret."""

    scopes: ClassVar = {"PUT": "secrets:write", "DELETE": "secrets:write"}

    def _asked(self) -> None:
        """Keep nothing of a request: its hash would tell a short value to who can guess."""
        return None

    @extend_schema(request=AskSecret, responses=SecretWritten)
    def put(self, request: Request, name: str) -> Response:
        """Set it; each value is a new version, and the one before is gone."""
        version, position = secrets.set_secret(
            self.store(),
            default_vault(),
            self.actor.tenant_id,
            name,
            self.body(AskSecret)["value"],
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"name": name, "version": version, "position": position})

    @extend_schema(responses=SecretWritten)
    def delete(self, request: Request, name: str) -> Response:
        """Remove it with its value."""
        position = secrets.remove_secret(
            self.store(),
            self.actor.tenant_id,
            name,
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"name": name, "position": position})
