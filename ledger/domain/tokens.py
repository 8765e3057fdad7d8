"""API tokens: how they look, what they may be used for, how long they work.

A token reads `offp_<kind>_<32 characters>_<6 characters>`. The prefix lets scanners of leaked
secrets find it, the checksum lets anybody tell a typo from a token that was revoked, without
asking the database. Only the sha256 of the whole text is ever kept.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, assert_never, cast, get_args

from ledger.domain.events import Role, TokenEvent, TokenIssued, TokenRevoked, TokenSucceeded
from ledger.domain.ids import HostId, TenantId, TokenId, UserId
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unauthenticated, Unknown

Kind = Literal["user", "host", "invite"]
"""user: a person's token. host: the token of one host's agent, and good for nothing else.
invite: the secret in the link of an invitation, which proves nobody to the API."""

Scope = Literal[
    "market:read",
    "offers:read",
    "offers:write",
    "bids:read",
    "bids:write",
    "leases:read",
    "leases:write",
    "files:read",
    "files:write",
    "secrets:read",
    "secrets:write",
    "billing:read",
    "billing:write",
    "notices:read",
    "notices:write",
    "payouts:read",
    "payouts:write",
    "tokens:read",
    "tokens:write",
    "agent",
    "admin",
]
SCOPES: tuple[Scope, ...] = get_args(Scope)

ROLES_OF_SCOPE: dict[Scope, frozenset[Role]] = {
    "market:read": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "offers:read": frozenset({"owner", "operator", "finance", "auditor"}),
    "offers:write": frozenset({"owner", "operator"}),
    "bids:read": frozenset({"consumer", "operator", "finance", "auditor"}),
    "bids:write": frozenset({"consumer", "operator"}),
    "leases:read": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "leases:write": frozenset({"owner", "operator", "consumer"}),
    "files:read": frozenset({"consumer", "operator"}),
    "files:write": frozenset({"consumer", "operator"}),
    "secrets:read": frozenset({"consumer", "operator"}),
    "secrets:write": frozenset({"consumer", "operator"}),
    "billing:read": frozenset({"operator", "finance", "auditor"}),
    "billing:write": frozenset({"operator", "finance"}),
    "notices:read": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "notices:write": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "payouts:read": frozenset({"owner", "operator", "finance", "auditor"}),
    "payouts:write": frozenset({"owner", "operator", "finance"}),
    "tokens:read": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "tokens:write": frozenset({"owner", "operator", "consumer", "finance", "auditor"}),
    "agent": frozenset(),
    "admin": frozenset({"operator"}),
}
"""Who may use a scope at all: a token never lets a person do more than their roles do."""

WITHIN: dict[str, frozenset[Scope]] = {
    "admin": frozenset({"tokens:read", "tokens:write"}),
    "bids:write": frozenset({"files:read", "files:write", "secrets:read"}),
    "secrets:write": frozenset({"secrets:read"}),
    "notices:write": frozenset({"notices:read"}),
}
"""What a scope holds besides itself: who may admit and dismiss people may see to their tokens, and
who may bid may bring what the work needs, have what it made, and name the secrets it is handed."""

LIFE_DEFAULT = timedelta(days=90)
LIFE_MAX = timedelta(days=365)
OVERLAP = timedelta(hours=24)
"""How long a host's token still works beside the one that was asked for in its place."""
TITLE_LENGTH_MAX = 120
RANDOM_LENGTH = 32
CHECKSUM_LENGTH = 6
SHOWN_LENGTH = 6
"""How much of the random part is kept in the clear, so that people can tell tokens apart."""
ENTROPY_BYTES_MIN = 32

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM = re.compile(r"(offp_(user|host|invite)_([0-9A-Za-z]{32}))_([0-9A-Za-z]{6})")


def carries(scopes: Collection[str], scope: str) -> bool:
    """Tell if one of these scopes is that one, or holds it."""
    return scope in scopes or any(scope in WITHIN.get(each, ()) for each in scopes)


class TokenMalformed(Unauthenticated):
    """That is not an Offpeak token, or part of it is missing.

    A token reads offp_user_… or offp_host_… and is 49 characters long. Copy it whole.
    """


class TokenChecksumWrong(Unauthenticated):
    """That token was mistyped: its last six characters do not fit the rest.

    Copy it again from where it is kept.
    """


class TokenWithoutScope(Invalid):
    """A token needs at least one scope, and every scope must be a known one."""


class TokenLifeOutOfRange(Invalid):
    """A token works for at least a minute and at most 365 days.

    Leave `expires_at` out for 90 days.
    """


class TokenTitleMissing(Invalid):
    """A token needs a title of at most 120 characters, so that you know it again."""


class TokenUnknown(Unknown):
    """There is no such token."""


class TokenMadeBefore(Refusal):
    """That token was made before, and its secret is shown only once.

    If you do not have it, revoke the token and make another with a new Idempotency-Key.
    """


class TokenOfNoHost(Forbidden):
    """Only the agent of a host asks for another token in place of its own.

    Make yours on the settings page.
    """


class TokenIsOver(Refusal):
    """That token has expired or was revoked, so none takes its place."""


class BeyondOwnToken(Invalid):
    """A token cannot make one that may do more than it, or that outlives it.

    Sign in on the settings page to make such a token.
    """


class ScopeBeyondRoles(Invalid):
    """Your roles do not allow what that scope stands for.

    Leave out the scopes named in `scopes`.
    """


@dataclass(frozen=True, slots=True)
class Written:
    """What can be read off a token's text. prefix: the part that may be shown."""

    kind: Kind
    prefix: str
    sha256: str


def write(kind: Kind, entropy: bytes) -> str:
    """Make a token's text out of random bytes, at least ENTROPY_BYTES_MIN of them."""
    assert len(entropy) >= ENTROPY_BYTES_MIN
    body = f"offp_{kind}_{_base62(int.from_bytes(entropy), RANDOM_LENGTH)}"
    return f"{body}_{_checksum(body)}"


def read(text: str) -> Written:
    """Read a token's text.

    Raises: TokenMalformed, TokenChecksumWrong.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise TokenMalformed()
    body, kind, random, checksum = form.groups()
    prefix = f"offp_{kind}_{random[:SHOWN_LENGTH]}"
    if checksum != _checksum(body):
        raise TokenChecksumWrong(prefix=prefix)
    return Written(cast(Kind, kind), prefix, hashlib.sha256(text.encode()).hexdigest())


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its stream tells it."""

    STREAM: ClassVar[str] = "token"

    issued: TokenIssued
    revoked_at: datetime | None = None
    succeeded: TokenSucceeded | None = None

    @classmethod
    def evolve(cls, state: Token | None, event: TokenEvent, /) -> Token:
        """Return the token after `event`."""
        match event:
            case TokenIssued():
                return cls(event)
            case TokenSucceeded():
                assert state is not None
                return replace(state, succeeded=event)
            case TokenRevoked():
                assert state is not None
                return replace(state, revoked_at=event.at)
            case _:
                assert_never(event)

    def revoke(self, *, now: datetime) -> list[TokenRevoked]:
        """Stop the token; it may have been stopped before."""
        if self.revoked_at is not None:
            return []
        return [TokenRevoked(token_id=self.issued.token_id, at=now)]

    def works_until(self) -> datetime:
        """Return when the token expires: sooner, where another was asked for in its place."""
        if self.succeeded is None:
            return self.issued.expires_at
        return min(self.issued.expires_at, self.succeeded.works_until)

    def succeed(self, successor_id: TokenId, *, now: datetime) -> list[TokenSucceeded]:
        """Let another take this host's token's place, which works on for OVERLAP at most.

        Asked for again with the same successor, nothing changes; another successor takes the place
        of one that was never used, and prolongs nothing.
        Raises: TokenOfNoHost, TokenIsOver.
        """
        if self.issued.host_id is None:
            raise TokenOfNoHost()
        if self.revoked_at is not None or self.works_until() <= now:
            raise TokenIsOver()
        if self.succeeded is not None and self.succeeded.successor_id == successor_id:
            return []
        return [
            TokenSucceeded(
                token_id=self.issued.token_id,
                successor_id=successor_id,
                works_until=min(self.works_until(), now + OVERLAP),
                at=now,
            )
        ]


def issue(
    *,
    token_id: TokenId,
    tenant_id: TenantId,
    holder: UserId | HostId,
    written: Written,
    title: str,
    scopes: Sequence[str],
    roles: frozenset[Role],
    expires_at: datetime | None,
    maker: TokenIssued | None,
    succeeds: TokenId | None = None,
    now: datetime,
) -> TokenIssued:
    """Decide on a new token. A host's token carries the scope `agent` and only that.

    roles: of the person it is for; it carries no scope that none of them may use.
    expires_at: None for LIFE_DEFAULT, or as long as `maker` works if that is shorter.
    maker: the token with which this one is asked for; None for a signed-in person.
    succeeds: the token in whose place it is.
    Raises: TokenWithoutScope, TokenLifeOutOfRange, TokenTitleMissing, ScopeBeyondRoles,
        BeyondOwnToken.
    """
    if expires_at is None:
        expires_at = min([now + LIFE_DEFAULT, *([maker.expires_at] if maker else [])])
    if not now + timedelta(minutes=1) <= expires_at <= now + LIFE_MAX:
        raise TokenLifeOutOfRange(expires_at=expires_at)
    if not 0 < len(title.strip()) <= TITLE_LENGTH_MAX:
        raise TokenTitleMissing()
    asked = _known(scopes)
    for_host = written.kind == "host"
    if for_host and asked != ("agent",):
        raise TokenWithoutScope(scopes=["agent"])
    beyond = [] if for_host else [each for each in asked if not ROLES_OF_SCOPE[each] & roles]
    if beyond:
        raise ScopeBeyondRoles(scopes=beyond)
    if maker is not None and not for_host:
        _check_within(maker, asked, expires_at)
    return TokenIssued(
        token_id=token_id,
        tenant_id=tenant_id,
        user_id=None if for_host else UserId(holder),
        host_id=HostId(holder) if for_host else None,
        title=title.strip(),
        prefix=written.prefix,
        sha256=written.sha256,
        scopes=asked,
        expires_at=expires_at,
        at=now,
        succeeds=succeeds,
    )


def _check_within(maker: TokenIssued, scopes: Sequence[str], expires_at: datetime) -> None:
    beyond = sorted(scope for scope in scopes if not carries(maker.scopes, scope))
    if beyond or expires_at > maker.expires_at:
        raise BeyondOwnToken(scopes=beyond, expires_at_max=maker.expires_at)


def _known(scopes: Sequence[str]) -> tuple[Scope, ...]:
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise TokenWithoutScope(unknown=unknown, known=list(SCOPES))
    return tuple(scope for scope in SCOPES if scope in scopes)
