"""API tokens of the asking person; an operator's page shows those of the whole organisation."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import commands, queries
from ledger.domain import tokens
from ledger.domain.ids import TokenId
from ledger.models import TokenRow
from ledger.rest import Body, Endpoint, MomentField, TextField, paginate
from ledger.rest.schema import WrittenAt


class IssueToken(Body):
    """A token: what for, and until when (90 days where nothing is said)."""

    title = TextField(max_length=tokens.TITLE_LENGTH_MAX)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(tokens.SCOPES),
        allow_empty=False,
        max_length=len(tokens.SCOPES),
    )
    expires_at = MomentField(required=False, default=None)


class TokenShown(serializers.Serializer[Any]):
    """A token as answered: never its secret."""

    token_id = serializers.UUIDField()
    title = serializers.CharField()
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    user_id = serializers.UUIDField(allow_null=True)
    host_id = serializers.UUIDField(allow_null=True)
    issued_at = MomentField()
    expires_at = MomentField()
    revoked_at = MomentField(allow_null=True)
    used_at = MomentField(allow_null=True)


class TokenMade(WrittenAt):
    """A token. token: its secret, which a repeat with the same key does not get again."""

    token_id = serializers.UUIDField()
    token = serializers.CharField(required=False)


class Tokens(Endpoint):
    """Tokens, and making one. Made with a token, it can do no more and lasts no longer."""

    scopes = {"GET": "tokens:read", "POST": "tokens:write"}
    reads = ("ledger.tokens",)
    secret_fields = frozenset({"token"})

    @extend_schema(responses=TokenShown(many=True))
    def get(self, request: Request) -> Response:
        """List them, the newest first; revoked and expired ones too."""
        rows = queries.tokens(self.actor)
        order = ("-issued_at", "token_id")
        page = paginate(rows, lambda row: row, order, query=request.query_params)
        uses = queries.last_uses(row.token_id for row in page["data"])
        page["data"] = [_shown(row, uses.get(row.token_id)) for row in page["data"]]
        return Response(page)

    @extend_schema(request=IssueToken, responses={201: TokenMade})
    def post(self, request: Request) -> Response:
        """Make one. `token` is shown this once; a repeat with the same key answers without it."""
        asked = self.body(IssueToken)
        user_id = self.actor.need_person()
        token_id = TokenId(uuid5(self.command_id, "token"))
        text = tokens.write("user", secrets.token_bytes(tokens.ENTROPY_BYTES_MIN))
        position = commands.issue_token(
            self.store(),
            token_id=token_id,
            tenant_id=self.actor.tenant_id,
            user_id=user_id,
            written=tokens.read(text),
            **asked,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"token_id": token_id, "token": text, "position": position}, status=201)


class TokenDetail(Endpoint):
    """One token."""

    scopes = {"GET": "tokens:read", "DELETE": "tokens:write"}
    reads = ("ledger.tokens",)

    @extend_schema(responses=TokenShown)
    def get(self, request: Request, token_id: UUID) -> Response:
        """Show it, without its secret."""
        row = queries.token(self.actor, token_id)
        return Response(_shown(row, queries.last_uses([token_id]).get(token_id)))

    @extend_schema(responses=WrittenAt)
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Stop it before its time. An operator may stop any of the organisation's tokens."""
        position = commands.revoke_token(
            self.store(f"token-{token_id}"),
            token_id=TokenId(token_id),
            tenant_id=self.actor.tenant_id,
            user_id=None if "operator" in self.actor.roles else self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _shown(row: TokenRow, used_at: datetime | None) -> dict[str, Any]:
    moment = MomentField().to_representation
    return {
        "token_id": row.token_id,
        "title": row.title,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "user_id": row.user_id,
        "host_id": row.host_id,
        "issued_at": moment(row.issued_at),
        "expires_at": moment(row.expires_at),
        "revoked_at": moment(row.revoked_at) if row.revoked_at else None,
        "used_at": moment(used_at) if used_at else None,
    }
