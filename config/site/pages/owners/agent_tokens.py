"""A token for the agent of a host, made on a page: its text is there to be shown this once."""

from __future__ import annotations

import secrets
from datetime import datetime
from uuid import UUID

from ledger import commands
from ledger.access import Actor
from ledger.domain import tokens
from ledger.domain.ids import HostId, TokenId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, Position


def issue_agent_token(
    actor: Actor, *, token_id: UUID, host_id: UUID, host: str, by: Meta, now: datetime
) -> tuple[str, Position]:
    """Issue a token for a host of the actor's own organisation; return its text.

    host: what it is called; that it is the organisation's, the caller checks.
    Raises: the refusals of `issue_host_token`.
    """
    text = tokens.write("host", secrets.token_bytes(tokens.ENTROPY_BYTES_MIN))
    position = commands.issue_host_token(
        default_store(),
        token_id=TokenId(token_id),
        tenant_id=actor.tenant_id,
        host_id=HostId(host_id),
        written=tokens.read(text),
        title=f"agent of {host}"[: tokens.TITLE_LENGTH_MAX],
        expires_at=None,
        by=by,
        now=now,
    )
    return text, position
