"""Who may connect to what of leased work, and how much of it at once.

A permit is for one person, one lease on one host, and one thing there. It is good for a minute, to
connect; what is connected ends with the lease, with the person's membership, or after silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args
from uuid import UUID

from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unauthenticated

Allowed = Literal["off", "ports", "shell"]
"""What an owner lets a lease's consumer reach: nothing, ports of the work, a shell as well."""
What = Literal["shell", "port"]

PERMIT_SECONDS = 60
PORT_MAX = 65_535
KEY_LENGTH_MAX = 1_000
STREAMS_OF_LEASE_MAX = 64
STREAMS_OF_PERSON_MAX = 128
STREAMS_OF_HOST_MAX = 256

_KEY = re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp256) [A-Za-z0-9+/]{40,400}={0,2}")


class HostNotConnected(Refusal):
    """The host of that lease keeps no tunnel open, so nothing of it can be reached.

    Its agent opens one where it is installed with the extra `access` and its owner allows it;
    after a lost line that takes a few seconds.
    """


class AccessNotAllowed(Forbidden):
    """The owner of that host does not allow this; `allowed` is what they do."""


class WorkNotRunning(Refusal):
    """Nothing of that lease runs on that host now, so there is nothing to connect to."""


class HostNotOfLease(Invalid):
    """That lease has no GPUs on that host."""


class PortMissing(Invalid):
    """Name the port to connect to, from 1 to 65535; a shell has none."""


class KeyUnreadable(Invalid):
    """A shell is opened with a public key: `ssh-ed25519` or `ecdsa-sha2-nistp256` and its text."""


class PermitNotGood(Unauthenticated):
    """That permit is not of this market, or its minute is over.

    Ask for a new one.
    """


class PersonMayNoLonger(Forbidden):
    """Whoever asked for that permit may not use the lease any more."""


class TooManyConnections(Refusal):
    """So many connections are open already; `most` at once are the bound of `of`."""

    status = 429


class NoWorkDomain(Refusal):
    """This market opens no port in a browser: it has no domain for leased work.

    `offpeak port-forward` reaches the same port.
    """


class FromPage(Forbidden):
    """A tunnel is for programs. A page of another site has no business there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What one connection may reach. port: 0 for a shell. key: the public one it proves."""

    lease_id: UUID
    host_id: UUID
    tenant_id: UUID
    user_id: UUID
    token_id: UUID | None
    what: What
    port: int = 0
    key: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            name: str(value) if isinstance(value, UUID) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Permit:
        """Read what `to_json` gave, and somebody signed."""
        token_id = said["token_id"]
        return cls(
            lease_id=UUID(said["lease_id"]),
            host_id=UUID(said["host_id"]),
            tenant_id=UUID(said["tenant_id"]),
            user_id=UUID(said["user_id"]),
            token_id=None if token_id is None else UUID(token_id),
            what=said["what"],
            port=said["port"],
            key=said["key"],
        )


def check_asked(what: What, port: int | None, key: str | None) -> None:
    """Refuse a wish that says too little or too much.

    Raises: PortMissing, KeyUnreadable.
    """
    if what == "port":
        if port is None or not 1 <= port <= PORT_MAX:
            raise PortMissing(port=port)
        if key is not None:
            raise KeyUnreadable(what=what)
    else:
        if port is not None:
            raise PortMissing(port=port)
        if key is None or not _KEY.fullmatch(key):
            raise KeyUnreadable(what=what)


def check_allowed(what: What, allowed: Allowed) -> None:
    """Refuse what the owner does not let anybody reach.

    Raises: AccessNotAllowed.
    """
    if allowed == "off" or (what == "shell" and allowed != "shell"):
        raise AccessNotAllowed(allowed=allowed)


def read_allowed(text: object) -> Allowed:
    """Return what an agent says that its owner allows; what is no word of it allows nothing."""
    return cast(Allowed, text) if text in get_args(Allowed) else "off"
