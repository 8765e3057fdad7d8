"""What a port of leased work is called below the domain of work."""

from __future__ import annotations

import re
from uuid import UUID

from metering.domain.access import PORT_MAX

OURS = "/.offpeak/"
"""Paths of a work's origin that are the market's."""
ENTER = OURS + "enter"

_LABEL = re.compile(
    r"(?P<port>[1-9][0-9]{0,4})-(?P<lease>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)


def name_of(lease_id: UUID, port: int, domain: str) -> str:
    """Return the host name of a port of a lease."""
    return f"{port}-{lease_id}.{domain}"


def read_name(name: str, domain: str) -> tuple[UUID, int] | None:
    """Return the lease and the port of a host name; None where it is of none."""
    label = _LABEL.fullmatch(name.removesuffix(f".{domain}"))
    if label is None or int(label["port"]) > PORT_MAX:
        return None
    return UUID(label["lease"]), int(label["port"])
