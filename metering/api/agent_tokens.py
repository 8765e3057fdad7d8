"""How the agent of a host comes by its token: by its owner's code, and in place of an older one.

The text follows from the installation's key, from what it is made for and from a number that the
agent drew: a repeat after a lost answer hands out the same one, and nothing has to be kept.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, ClassVar
from uuid import UUID, uuid5

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.commands.rotation import take_up_token
from ledger.domain import tokens
from ledger.domain.events import TokenIssued
from ledger.domain.ids import EnrolmentId, TokenId
from ledger.domain.refusal import Unauthenticated
from ledger.domain.tokens import Token
from ledger.eventstore import default_store
from ledger.eventstore.port import load
from ledger.rest import throttling
from listings.commands.enrolling import enrol_host, rotate_host_token
from listings.domain.enrolments import (
    Enrolment,
    EnrolmentCodeUnknown,
    enrolment_of,
    read_code,
)
from metering.agent.wire_of_tokens import CODE_SCHEME, TokenAsked, TokenGiven, TokenTaken
from metering.api.agent import AgentEndpoint

TRIES_PER_MINUTE = 10
"""Codes that are tried from one address: beside 49 bits and 15 minutes, that is none."""


class CodeNeeded(Unauthenticated):
    """Send the enrolment code as `Authorization: Enrolment CODE`.

    The owner of the host makes one: offpeak hosts enrol NAME.
    """


class EnrolmentCodeProof(BaseAuthentication):
    """`Authorization: Enrolment K7Q4M-2XD9F`: the agent of the host that the code was made for."""

    def authenticate(self, request: Request) -> tuple[None, Actor]:
        """Return that agent; whether the code still works, the rule says.

        Raises: CodeNeeded, TooManyRequests, EnrolmentCodeMalformed, EnrolmentCodeUnknown.
        """
        scheme, _, code = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != CODE_SCHEME.lower():
            raise CodeNeeded()
        address = request.META.get("REMOTE_ADDR") or "nowhere"
        throttling.take(
            f"enrolment:{address}"[:100], per_minute=TRIES_PER_MINUTE, now=timezone.now()
        )
        enrolment_id = enrolment_of(read_code(code), _key())
        enrolment = load(default_store(), Enrolment, enrolment_id)
        if enrolment is None:
            raise EnrolmentCodeUnknown()
        return None, Actor(
            tenant_id=enrolment.made.tenant_id,
            host_id=enrolment.made.host_id,
            token_id=TokenId(enrolment_id),
            scopes=frozenset({"agent"}),
        )

    def authenticate_header(self, request: Request) -> str:
        """Return what the answer 401 asks for."""
        return CODE_SCHEME


class EnrolmentCodeScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes enrolment codes."""

    target_class = EnrolmentCodeProof
    name = "enrolment"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the scheme."""
        return {"type": "apiKey", "in": "header", "name": "Authorization"}


class AgentEnrolment(AgentEndpoint):
    """A host's agent without a token."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("listings.hosts",)
    authentication_classes = (EnrolmentCodeProof,)  # type: ignore[assignment]  # no other
    one_append: ClassVar = True

    def _asked(self) -> None:
        """Keep no answer: it has a secret in it, and a repeat works it out anew."""
        return None

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Exchange a code for the token of the host's agent; the code works once."""
        asked = self.message(TokenAsked)
        enrolment_id = self.actor.token_id
        assert enrolment_id is not None
        text = _text(f"enrolment:{enrolment_id}:{asked.nonce}")
        written = tokens.read(text)
        issued, _ = enrol_host(
            self.store(),
            enrolment_id=EnrolmentId(enrolment_id),
            token_id=TokenId(uuid5(enrolment_id, written.sha256)),
            written=written,
            hostname=asked.hostname,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response(_given(issued, text).to_json())


class AgentToken(AgentEndpoint):
    """The token of a host's agent."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("listings.hosts",)
    one_append: ClassVar = True

    def _asked(self) -> None:
        """Keep no answer: it has a secret in it, and a repeat works it out anew."""
        return None

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Make another token in place of the one that asks, which works on for a day at most."""
        asked, old_id = self.message(TokenAsked), _own_token(self.actor)
        text = _text(f"rotation:{old_id}:{asked.nonce}")
        written, store = tokens.read(text), self.store()
        issued, _ = rotate_host_token(
            store,
            host_id=self.host_id,
            token_id=old_id,
            successor_id=TokenId(uuid5(old_id, written.sha256)),
            written=written,
            by=self.meta(),
            now=timezone.now(),
        )
        old = load(store, Token, old_id)
        assert old is not None
        return Response(_given(issued, text, old).to_json())


class AgentTokenTaken(AgentEndpoint):
    """That an agent has its new token in use."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("listings.hosts",)
    one_append: ClassVar = True

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Revoke the token in whose place the one that asks was made."""
        self.message(TokenTaken)
        take_up_token(
            self.store(), token_id=_own_token(self.actor), by=self.meta(), now=timezone.now()
        )
        return Response(TokenTaken().to_json())


def _own_token(actor: Actor) -> TokenId:
    assert actor.token_id is not None, "an agent proves itself by a token"
    return actor.token_id


def _given(issued: TokenIssued, text: str, old: Token | None = None) -> TokenGiven:
    assert issued.host_id is not None
    return TokenGiven(
        host_id=UUID(str(issued.host_id)),
        token=text,
        expires_at=issued.expires_at,
        old_works_until=None if old is None else old.works_until(),
    )


def _key() -> bytes:
    key: str = settings.SECRET_KEY
    return key.encode()


def _text(purpose: str) -> str:
    return tokens.write("host", hmac.digest(_key(), purpose.encode(), hashlib.sha256))
