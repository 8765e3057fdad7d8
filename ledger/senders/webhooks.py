"""Messages by HTTP: signed, to public addresses, no redirect followed, never for long.

Where a name leads is looked at when the connection is made, and the connection goes to the very
address that was looked at: a name that leads elsewhere a moment later changes nothing.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from urllib.parse import urlsplit

from ledger.domain.deliveries import (
    EXCERPT_LENGTH_MAX,
    AddressRefused,
    UrlUnfit,
    may_go_to,
    need_url,
    sign,
)
from ledger.senders.port import TIMEOUT_SECONDS, Message, Outcome

USER_AGENT = "Offpeak-Webhooks/1"
GONE = 410


class WebhookSender:
    """Posts messages. private: also to the market's own network, and by http.

    context: how receivers prove themselves; None: by the certificates that this machine trusts.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        private: bool = False,
        context: ssl.SSLContext | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._clock, self._private = clock, private
        self._given, self._timeout = context, timeout_seconds

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self._given or ssl.create_default_context()

    def send(self, message: Message) -> Outcome:
        """Post one message; through if the receiver answers 2xx."""
        try:
            parts = urlsplit(need_url(message.to, private=self._private))
            host, default_port = str(parts.hostname), 443 if parts.scheme == "https" else 80
            made = self._connected(host, parts.port or default_port)
        except UrlUnfit as unfit:
            return Outcome(is_through=False, words=unfit.message())
        except AddressRefused as refused:
            return Outcome(is_through=False, words=str(refused))
        except OSError as failure:
            return Outcome(is_through=False, words=_why(failure))
        # A receiver that gives a byte now and then would never time out by itself.
        held = [made]
        ending = threading.Timer(2 * self._timeout, _end, [held])
        ending.daemon = True
        ending.start()
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return self._posted(held, parts.scheme, parts.netloc, host, path, message)
        except (OSError, HTTPException) as failure:
            return Outcome(is_through=False, words=_why(failure))
        finally:
            ending.cancel()
            with suppress(OSError):
                held[0].close()

    def _connected(self, host: str, port: int) -> socket.socket:
        """Return a connection to an address of that name to which messages may go."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]).partition("%")[0] for each in found]
        for address in addresses:
            if not may_go_to(ip_address(address), private=self._private):
                raise AddressRefused(f"{host} leads to an address that messages may not go to")
        failure = OSError("the name leads nowhere")
        for address in dict.fromkeys(addresses):
            try:
                return socket.create_connection((address, port), timeout=self._timeout)
            except OSError as refused:
                failure = refused
        raise failure

    def _posted(
        self,
        held: list[socket.socket],
        scheme: str,
        netloc: str,
        host: str,
        path: str,
        message: Message,
    ) -> Outcome:
        at, body = self._clock(), message.body.encode()
        speaking: HTTPConnection
        if scheme == "https":
            speaking = HTTPSConnection(host, timeout=self._timeout)
            sealed = self._context.wrap_socket(
                held[0], server_hostname=host, do_handshake_on_connect=False
            )
            held[0] = speaking.sock = sealed  # the plain one is empty from here on
            sealed.do_handshake()
        else:
            speaking = HTTPConnection(host, timeout=self._timeout)
            speaking.sock = held[0]
        try:
            speaking.request(
                "POST",
                path,
                body,
                {
                    "Host": netloc,
                    "Content-Type": "application/json",
                    "User-Agent": USER_AGENT,
                    "webhook-id": message.message_id,
                    "webhook-timestamp": str(int(at.timestamp())),
                    "webhook-signature": sign(message.secrets, message.message_id, at, body),
                    "Connection": "close",
                },
            )
            answer = speaking.getresponse()
            words = answer.read(EXCERPT_LENGTH_MAX).decode("utf-8", "replace")
        finally:
            speaking.close()
        through = 200 <= answer.status < 300
        return Outcome(
            is_through=through,
            status=answer.status,
            words=_plain(words),
            is_gone=answer.status == GONE,
        )


def _end(held: list[socket.socket]) -> None:
    with suppress(OSError):
        held[0].shutdown(socket.SHUT_RDWR)


def _plain(words: str) -> str:
    """Return words as a table can hold them."""
    return "".join(each if each.isprintable() else " " for each in words)[:EXCERPT_LENGTH_MAX]


def _why(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    return _plain(str(failure) or type(failure).__name__)
