"""Whether all processes sign with one key: each tells a digest of its own, and compares.

Sessions and the tokens of rented machines are signed with `OFFPEAK_SECRET_KEY`, or with a key that
is made once under OFFPEAK_HOME. Where machines have a data directory each, they would each make
one, and a log-in on one machine would be unknown to the next (ADR 0053).
"""

from __future__ import annotations

import hashlib
import hmac
import threading

import structlog
from django.conf import settings
from django.db import DatabaseError, connection

TELL_SECONDS = 20.0
ALIVE_SECONDS = 60
"""How long after a process told its key last it is taken to be there."""
MEND = "give every machine the same OFFPEAK_SECRET_KEY and start its processes again"

_TELL = """
INSERT INTO site_signing_key (digest, first_seen_at, last_seen_at) VALUES (%s, now(), now())
ON CONFLICT (digest) DO UPDATE SET
  first_seen_at = CASE WHEN site_signing_key.last_seen_at < now() - make_interval(secs => %s)
                       THEN now() ELSE site_signing_key.first_seen_at END,
  last_seen_at = now()
"""
_ALIVE = """
SELECT digest FROM site_signing_key
WHERE last_seen_at >= now() - make_interval(secs => %s) ORDER BY first_seen_at, digest
"""

log = structlog.get_logger()


def digest_of(key: str) -> str:
    """Return what tells keys apart and gives none away: half of a hash of 256 random bits."""
    return hmac.new(key.encode(), b"offpeak: which key", hashlib.sha256).hexdigest()[:32]


def tell_key() -> None:
    """Write down that a process with this one's key is there."""
    with connection.cursor() as cursor:
        cursor.execute(_TELL, [digest_of(settings.SECRET_KEY), ALIVE_SECONDS])


def tell_key_meanwhile() -> None:
    """Go on telling it beside the work of this process, with a connection for a moment each."""
    threading.Thread(target=_tell_on, name="signing-key", daemon=True).start()


def _tell_on() -> None:
    wait = threading.Event()
    while True:
        try:
            tell_key()
        except DatabaseError as lost:  # away, or before its tables were made
            log.debug("signing-key.waiting", error=str(lost).strip())
        finally:
            connection.close()
        wait.wait(TELL_SECONDS)


def disagreement() -> tuple[str, bool]:
    """Return what is wrong with the keys of processes that are there, and if this one is at fault.

    The key that was there first stands: a process that comes with another is the one that is not
    ready, so that a mistake on one machine takes no other away. Empty where all agree.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ALIVE, [ALIVE_SECONDS])
        alive = [digest for (digest,) in cursor.fetchall()]
    own = digest_of(settings.SECRET_KEY)
    if set(alive) <= {own}:
        return "", False
    if len(alive) > 1 and alive[0] == own:
        return f"another machine signs sessions with another key: {MEND}", False
    return f"this process signs sessions with another key than others: {MEND}", True
