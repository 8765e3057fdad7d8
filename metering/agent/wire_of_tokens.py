"""The messages by which an agent gets its token, and another in its place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from .strict import Length, Message

ENROLMENT_PATH = "/api/v1/agent/enrolment"
TOKEN_PATH = "/api/v1/agent/token"
TOKEN_TAKEN_PATH = "/api/v1/agent/token/taken"

CODE_SCHEME = "Enrolment"
"""`Authorization: Enrolment CODE`: how an agent that has no token yet says who it is."""
TOKENS_FINAL = frozenset({"enrolment-code-used", "enrolment-code-expired", "token-is-over"})
"""Codes of 409 about tokens that asking again does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAsked(Message):
    """POST /api/v1/agent/enrolment with a code, POST /api/v1/agent/token with the agent's token.

    nonce: drawn by the agent and kept until it has the answer: asked again with the same one, the
    server answers the same token. hostname: what the machine calls itself.
    """

    nonce: Annotated[str, Length(32, 64)]
    hostname: Annotated[str, Length(0, 200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGiven(Message):
    """The token. old_works_until: of the one it is in place of, unless it is taken up before."""

    host_id: UUID
    token: Annotated[str, Length(1, 200)]
    expires_at: datetime
    old_works_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTaken(Message):
    """POST /api/v1/agent/token/taken, with the new token, and its answer: the old one is over."""

    taken: bool = True
