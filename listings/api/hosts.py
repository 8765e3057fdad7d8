"""An owner's hosts over HTTP."""

from __future__ import annotations

import os
from typing import ClassVar
from uuid import UUID, uuid5

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.commands.tokens import issue_host_token
from ledger.domain import tokens
from ledger.domain.ids import HostId, TenantId, TokenId
from ledger.eventstore import default_store
from ledger.eventstore.port import load, stream_name
from ledger.rest import Endpoint, MomentField, etag_of
from listings import commands, queries
from listings.api.acting import meta_on
from listings.api.shapes import (
    AgentTokenMade,
    EnrolmentCodeMade,
    HostShape,
    MakeAgentToken,
    RegisterHost,
    Written,
    host_fields,
)
from listings.commands.enrolling import make_enrolment_code
from listings.domain import enrolments
from listings.domain.events import Taking
from listings.domain.hosts import Host


class Hosts(Endpoint):
    """An owner's hosts."""

    scopes: ClassVar = {"GET": "offers:read", "POST": "offers:write"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(responses=HostShape(many=True))
    def get(self, request: Request) -> Response:
        """List hosts, newest first."""
        return self.page(queries.hosts(self.actor), HostShape, ("-registered_at", "host_id"))

    @extend_schema(request=RegisterHost, responses={201: Written})
    def post(self, request: Request) -> Response:
        """Make a host known under an id of the server's choice."""
        asked, by = self.body(RegisterHost), self.meta()
        assert by.command_id is not None
        host_id = HostId(uuid5(by.command_id, "host"))
        position = commands.register_host(
            self.store(),
            host_id=host_id,
            tenant_id=self.actor.tenant_id,
            **host_fields(asked, markets=settings.MARKETS),
            by=by,
            now=timezone.now(),
        )
        return Response({"id": host_id, "position": position}, status=201)


class OneHost(Endpoint):
    """One host of an owner."""

    scopes: ClassVar = {"GET": "offers:read", "PUT": "offers:write"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(responses=HostShape)
    def get(self, request: Request, host_id: UUID) -> Response:
        """Show a host and the GPUs its agent reported."""
        row = queries.host(self.actor, self._own_id(host_id))
        return Response(HostShape(row).data, headers={"ETag": etag_of(row.version)})

    @extend_schema(request=RegisterHost, responses=Written)
    def put(self, request: Request, host_id: UUID) -> Response:
        """Make a host known under a key of your choice; again with the same terms is harmless.

        The answer's `id` is the host's, derived from the key and your organisation: what keys
        others chose, nobody learns.
        """
        asked = self.body(RegisterHost)
        host_id = self._own_id(host_id)
        position = commands.register_host(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            tenant_id=self.actor.tenant_id,
            **host_fields(asked, markets=settings.MARKETS),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": host_id, "position": position})

    def _own_id(self, key: UUID) -> UUID:
        """Return the id of the organisation's own host by its id, or by the key it was made by."""
        known = load(default_store(), Host, key)
        if known is not None and (
            self.actor.sees_all or known.registered.tenant_id == self.actor.tenant_id
        ):
            return key
        return uuid5(self.actor.tenant_id, f"host {key}")


class RetireHost(Endpoint):
    """The end of a host."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, host_id: UUID) -> Response:
        """Take a host off the market for good and withdraw its offers."""
        position = commands.retire_host(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": host_id, "position": position})


class TurnHost(Endpoint):
    """The owner's switch of a host, on the market.

    The one at the host is its agent's, `offpeak-agent pause`: what that keeps back, none of these
    gives free.
    """

    scopes: ClassVar = {}
    reads: ClassVar = ("listings.hosts",)
    turns_to: ClassVar[Taking]

    def turn(self, host_id: UUID) -> Response:
        """Turn the switch; turned twice, it stands as after once."""
        position = commands.turn_switch(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            on_market=self.turns_to,
            by=meta_on(self.actor, self.meta(), default_store(), host_id),
            now=timezone.now(),
        )
        return Response({"id": host_id, "position": position})


class PauseHost(TurnHost):
    """A host takes no new work."""

    scopes: ClassVar = {"POST": "offers:write"}
    turns_to: ClassVar[Taking] = "paused"

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, host_id: UUID) -> Response:
        """Take no new work on a host; what runs there goes on to its end."""
        return self.turn(host_id)


class DrainHost(TurnHost):
    """A host is emptied by what was agreed."""

    scopes: ClassVar = {"POST": "offers:write"}
    turns_to: ClassVar[Taking] = "draining"

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, host_id: UUID) -> Response:
        """Take no new work on a host, and reclaim what runs there, each with its least notice."""
        return self.turn(host_id)


class ReleaseHost(TurnHost):
    """A host is emptied at once."""

    scopes: ClassVar = {"POST": "offers:write"}
    turns_to: ClassVar[Taking] = "released"

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, host_id: UUID) -> Response:
        """Take no new work on a host, and take its GPUs back at once.

        Each lease is compensated like a reclaim with the least notice. Through the market this
        takes seconds; `offpeak-agent release --now` at the host does not wait for it.
        """
        return self.turn(host_id)


class ResumeHost(TurnHost):
    """A host takes work again."""

    scopes: ClassVar = {"POST": "offers:write"}
    turns_to: ClassVar[Taking] = "all"

    @extend_schema(request=None, responses=Written)
    def post(self, request: Request, host_id: UUID) -> Response:
        """Take work on a host again, as far as the switch at the host lets it."""
        return self.turn(host_id)


class AgentTokens(Endpoint):
    """Tokens for the agent of a host."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.hosts",)
    secret_fields: ClassVar = frozenset({"token"})

    @extend_schema(request=MakeAgentToken, responses={201: AgentTokenMade})
    def post(self, request: Request, host_id: UUID) -> Response:
        """Make a token that is good for this host's agent and for nothing else."""
        asked, by = self.body(MakeAgentToken), self.meta()
        assert by.command_id is not None
        row = queries.host(self.actor, host_id)
        text = tokens.write("host", os.urandom(tokens.ENTROPY_BYTES_MIN))
        token_id = TokenId(uuid5(by.command_id, "token"))
        position = issue_host_token(
            self.store(),
            token_id=token_id,
            tenant_id=TenantId(row.tenant_id),
            host_id=HostId(host_id),
            written=tokens.read(text),
            title=asked["title"],
            expires_at=asked.get("expires_at"),
            by=by,
            now=timezone.now(),
        )
        return Response({"id": token_id, "token": text, "position": position}, status=201)


class EnrolmentCodes(Endpoint):
    """Codes for the agent of a host that has no token yet."""

    scopes: ClassVar = {"POST": "offers:write"}
    reads: ClassVar = ("listings.hosts",)
    secret_fields: ClassVar = frozenset({"code"})

    @extend_schema(request=None, responses={201: EnrolmentCodeMade})
    def post(self, request: Request, host_id: UUID) -> Response:
        """Make a code that works once, for 15 minutes: `offpeak-agent enrol URL CODE`."""
        row = queries.host(self.actor, host_id)
        code = enrolments.write_code(os.urandom(enrolments.ENTROPY_BYTES_MIN))
        made, position = make_enrolment_code(
            self.store(),
            enrolment_id=enrolments.enrolment_of(code, settings.SECRET_KEY.encode()),
            host_id=HostId(row.host_id),
            by=self.meta(),
            now=timezone.now(),
        )
        expires_at = MomentField().to_representation(made.expires_at)
        return Response({"code": code, "expires_at": expires_at, "position": position}, status=201)
