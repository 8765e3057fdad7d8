"""Links of the market itself to one blob: signed, for one way, for a while.

For whoever serves them nothing is asked of the database: all that a holder may do is in the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.core import signing

from ledger.domain.refusal import Forbidden
from marketplace.storage.port import LINK_SECONDS, BlobKey, Link

PREFIX = "/blobs/"
SALT = "offpeak.blob"

Way = Literal["put", "get"]


class LinkNotGood(Forbidden):
    """That link is not of this market, is for something else, or its time is over.

    Ask for a new one.
    """


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a link lets its holder do."""

    way: Way
    key: BlobKey
    size: int


def put_link(key: BlobKey, size: int) -> Link:
    """Return where the market takes these bytes."""
    return Link(_signed("put", key, size), {"Content-Type": "application/octet-stream"})


def get_link(key: BlobKey) -> Link:
    """Return where the market gives a blob."""
    return Link(_signed("get", key, 0))


def ticket_of(token: str, way: Way) -> Ticket:
    """Return what the last part of a link lets its holder do.

    Raises: LinkNotGood.
    """
    try:
        said, tenant, sha256, size = signing.loads(token, salt=SALT, max_age=LINK_SECONDS)
    except (signing.BadSignature, ValueError):
        raise LinkNotGood() from None
    if said != way:
        raise LinkNotGood()
    return Ticket(way, BlobKey(UUID(tenant), sha256), size)


def _signed(way: Way, key: BlobKey, size: int) -> str:
    said = [way, str(key.tenant_id), key.sha256, size]
    return PREFIX + signing.dumps(said, salt=SALT)
