"""A host's token gives way to another: both work for a while, then the new one alone.

The agent asks with its token, keeps what it is answered, and takes it up with the new token. Until
then the old one works, so that an agent that is killed in between has one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain import tokens
from ledger.domain.events import Role, TokenIssued, TokenRevoked, TokenSucceeded
from ledger.domain.ids import TokenId
from ledger.domain.refusal import Refusal
from ledger.domain.tokens import Token, TokenMadeBefore, TokenUnknown, Written
from ledger.eventstore.port import START, EventStore, Meta, Position, load
from ledger.eventstore.together import Part, record_together


class AnotherWasFaster(Refusal):
    """Another token was asked for in that one's place at the same moment.

    Ask again.
    """


def rotate_token(
    store: EventStore,
    *,
    token_id: TokenId,
    successor_id: TokenId,
    written: Written,
    by: Meta,
    now: datetime,
) -> tuple[TokenIssued, Position]:
    """Make a token in place of a host's own; asked again with the same one, change nothing.

    written: what `tokens.read` says of the new one's text. An earlier one that was asked for in
    the same place, and not taken up, is revoked.
    Raises: TokenUnknown, TokenOfNoHost, TokenIsOver, TokenMadeBefore, AnotherWasFaster.
    """
    old = load(store, Token, token_id)
    if old is None:
        raise TokenUnknown(token_id=token_id)
    earlier = old.succeeded
    no_roles: frozenset[Role] = frozenset()
    old.succeed(successor_id, now=now)
    assert old.issued.host_id is not None
    terms = tokens.issue(
        token_id=successor_id,
        tenant_id=old.issued.tenant_id,
        holder=old.issued.host_id,
        written=written,
        title=old.issued.title,
        scopes=old.issued.scopes,
        roles=no_roles,
        expires_at=now + tokens.LIFE_DEFAULT,
        maker=None,
        succeeds=token_id,
        now=now,
    )

    def succeed(state: Token | None) -> Sequence[TokenSucceeded]:
        assert state is not None
        if state.succeeded != earlier and not _is_by(state, successor_id):
            raise AnotherWasFaster(token_id=token_id)
        return state.succeed(successor_id, now=now)

    parts = [
        Part(Token, successor_id, lambda state: issue_once(state, terms), by.step("new")),
        Part(Token, token_id, succeed, by.step("old")),
    ]
    if earlier is not None and earlier.successor_id != successor_id:

        def drop(state: Token | None) -> Sequence[TokenRevoked]:
            return [] if state is None else state.revoke(now=now)

        parts.append(Part(Token, earlier.successor_id, drop, by.step("earlier")))
    positions = record_together(store, parts, whole=True)
    made = load(store, Token, successor_id)
    assert made is not None
    return made.issued, max(positions)


def _is_by(token: Token, successor_id: TokenId) -> bool:
    return token.succeeded is not None and token.succeeded.successor_id == successor_id


def issue_once(state: Token | None, terms: TokenIssued) -> Sequence[TokenIssued]:
    """Issue a token unless it is there; its text is the same, or somebody else's.

    Raises: TokenMadeBefore.
    """
    if state is None:
        return [terms]
    if state.issued.sha256 != terms.sha256:
        raise TokenMadeBefore(token_id=terms.token_id)
    return []


def take_up_token(store: EventStore, *, token_id: TokenId, by: Meta, now: datetime) -> Position:
    """Revoke the token that this one was made in place of: it is in use now.

    Raises: TokenUnknown.
    """
    token = load(store, Token, token_id)
    if token is None:
        raise TokenUnknown(token_id=token_id)
    old = token.issued.succeeds

    def drop(state: Token | None) -> Sequence[TokenRevoked]:
        return [] if state is None else state.revoke(now=now)

    parts = [] if old is None else [Part(Token, old, drop, by)]
    return max(record_together(store, parts), default=START)
