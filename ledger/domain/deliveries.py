"""How a notice goes out: when it is tried again, how it is signed, where it may go.

Signatures follow the Standard Webhooks specification, version 1: HMAC-SHA256 over
`<id>.<timestamp>.<body>`, so that the libraries of that name check them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from ledger.domain.refusal import Invalid, Refusal, Unknown

BACK_OFF_SECONDS = (10, 60, 300, 1_800, 7_200, 21_600, 43_200)
"""How long is waited after each attempt that failed: eight attempts within 21 hours."""
ATTEMPTS_MAX = len(BACK_OFF_SECONDS) + 1
REST_SECONDS_MAX = 3_600
"""A receiver that fails is left alone for so long at most, whatever waits for it."""
FAILING_MAX = timedelta(days=3)
"""A webhook that failed for so long is switched off."""
STALE_AFTER = timedelta(days=1)
"""What is older when it is first seen (an upgrade, a restored backup) goes to inboxes alone."""
KEPT = timedelta(days=30)
"""How long the log of deliveries is kept."""
OVERLAP = timedelta(hours=24)
"""How long a replaced secret still signs beside its successor."""
TOLERANCE = timedelta(minutes=5)
"""How far a message's time may be from the receiver's clock."""
SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"  # what every secret begins with
URL_LENGTH_MAX = 500
WEBHOOKS_MAX = 10
EXCERPT_LENGTH_MAX = 500


class UrlUnfit(Invalid):
    """A webhook needs an address that begins with https:// and names a public host.

    No user or password, and no part after #. Whoever runs the market can allow addresses within
    its own network.
    """


class TooManyWebhooks(Refusal):
    """An organisation has at most ten webhooks.

    Remove one first.
    """


class WebhookUnknown(Unknown):
    """There is no such webhook in your organisation."""


class DeliveryUnknown(Unknown):
    """There is no such delivery; the log goes back thirty days."""


class WebhookOff(Refusal):
    """That webhook is switched off.

    Switch it on first: then what waits is sent.
    """


class AddressRefused(Exception):
    """The host's name leads to an address that messages may not go to."""


def next_attempt(attempts: int, *, now: datetime) -> datetime | None:
    """Return when a message is tried again that failed so many times; None: never again."""
    assert attempts > 0
    if attempts >= ATTEMPTS_MAX:
        return None
    return now + timedelta(seconds=BACK_OFF_SECONDS[attempts - 1])


def rest(failures: int, *, now: datetime) -> datetime:
    """Return until when a receiver is left alone that failed so many times in a row."""
    assert failures > 0
    return now + timedelta(seconds=min(10 * 2 ** min(failures - 1, 20), REST_SECONDS_MAX))


def write_secret(random: bytes) -> str:
    """Return a signing secret as a receiver is shown it."""
    assert len(random) == SECRET_BYTES
    return SECRET_PREFIX + base64.b64encode(random).decode()


def sign(secrets: Sequence[str], message_id: str, at: datetime, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature for each secret that is valid now."""
    return " ".join(
        "v1," + base64.b64encode(_signature(secret, message_id, at, body)).decode()
        for secret in secrets
    )


def _signature(secret: str, message_id: str, at: datetime, body: bytes) -> bytes:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{int(at.timestamp())}.".encode() + body
    return hmac.new(key, signed, hashlib.sha256).digest()


def need_url(url: str, *, private: bool) -> str:
    """Return a webhook's address if it can be one.

    private: http, and addresses of the market's own network, are allowed. What a name leads to is
    looked at again whenever a connection is made.
    Raises: UrlUnfit.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as unreadable:
        raise UrlUnfit() from unreadable
    readable = url.isascii() and url.isprintable() and " " not in url
    schemes = ("https", "http") if private else ("https",)
    if not readable or len(url) > URL_LENGTH_MAX or parts.scheme not in schemes:
        raise UrlUnfit()
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise UrlUnfit()
    if parts.fragment:
        raise UrlUnfit()
    try:
        literal = ip_address(parts.hostname)
    except ValueError:
        named_here = parts.hostname == "localhost" or parts.hostname.endswith(".localhost")
        if named_here and not private:
            raise UrlUnfit() from None
        return url
    if not may_go_to(literal, private=private):
        raise UrlUnfit()
    return url


def may_go_to(address: IPv4Address | IPv6Address, *, private: bool) -> bool:
    """Tell if a message may go to an address.

    Never to link-local ones: there clouds give their machines' credentials away.
    """
    plain = getattr(address, "ipv4_mapped", None) or address
    if isinstance(plain, IPv6Address):
        inside = plain.sixtofour or (plain.teredo or (None, None))[1]
        if inside is not None:
            plain = inside
    if plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain.is_reserved:
        return False
    return plain.is_global or (private and (plain.is_private or plain.is_loopback))
