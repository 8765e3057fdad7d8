"""From the market's page to the origin of leased work: a hand-over, good once, and a session there.

A hand-over stands in an address, where others may see it later: so it is good for half a minute
and for one browser. What it is changed for is a cookie of the work's own origin, for one person,
one lease and one port.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from django.core import signing
from django.core.cache import cache

from ledger.domain.refusal import Unauthenticated
from metering.domain.access import Permit

HAND_OVER_SALT = "offpeak.work-hand-over"
SESSION_SALT = "offpeak.work-session"
HAND_OVER_SECONDS = 30
RENEWED_SECONDS = 60
"""A session that is used is written anew this often, so that it ends only when idle."""


class HandOverNotGood(Unauthenticated):
    """That link was used already, or its half minute is over.

    Open the port from the lease's page again.
    """


class SessionOver(Unauthenticated):
    """This port of a lease is opened from the lease's page in the market."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who uses which port of work. is_old: its text should be renewed."""

    permit: Permit
    is_old: bool


def hand_over(permit: Permit) -> str:
    """Return a text that lets one browser begin a session."""
    said = {"permit": permit.to_json(), "once": uuid4().hex}
    return signing.dumps(said, salt=HAND_OVER_SALT, compress=True)


def taken_over(text: str) -> Permit:
    """Return what a hand-over allows, once. Raises: HandOverNotGood."""
    try:
        said = signing.loads(
            text, salt=HAND_OVER_SALT, max_age=timedelta(seconds=HAND_OVER_SECONDS)
        )
    except signing.BadSignature:
        raise HandOverNotGood() from None
    if not cache.add(f"hand-over:{said['once']}", 1, timeout=2 * HAND_OVER_SECONDS):
        raise HandOverNotGood()
    return Permit.from_json(said["permit"])


def begin_session(permit: Permit) -> str:
    """Return the text of a session that begins, or goes on, now."""
    return signing.dumps(permit.to_json(), salt=SESSION_SALT, compress=True)


def session_of(text: str, *, idle_seconds: int) -> Session:
    """Return whose session a text is. Raises: SessionOver."""
    signer = signing.TimestampSigner(salt=SESSION_SALT)
    try:
        said = signing.loads(text, salt=SESSION_SALT, max_age=timedelta(seconds=idle_seconds))
    except signing.BadSignature:
        raise SessionOver() from None
    try:
        signer.unsign(text, max_age=min(RENEWED_SECONDS, idle_seconds // 2))
    except signing.SignatureExpired:
        return Session(Permit.from_json(said), is_old=True)
    return Session(Permit.from_json(said), is_old=False)
