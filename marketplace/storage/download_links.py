"""Links by which a browser saves what is in a kept folder, each good for one thing and a minute."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta

from django.core import signing

from marketplace.storage.tickets import LinkNotGood

PREFIX = "/downloads/"
SALT = "offpeak.download"
LINK_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a link leads to: a folder's manifest, and a file of it; path empty: all of it.

    name: what the browser calls it. kept_at: as ISO text, the time that an archive tells.
    """

    tenant_id: str
    manifest: str
    path: str
    name: str
    kept_at: str

    def link(self) -> str:
        """Return where it is served, for a minute."""
        return PREFIX + signing.dumps(asdict(self), salt=SALT, compress=True)


def wanted_by(token: str) -> Wanted:
    """Return what a link leads to. Raises: LinkNotGood."""
    try:
        said = signing.loads(token, salt=SALT, max_age=timedelta(seconds=LINK_SECONDS))
    except signing.BadSignature:
        raise LinkNotGood() from None
    return Wanted(**said)
