"""Where leased work may connect to, as the host's owner says: nowhere, to a list, or outwards.

On a list stand networks, and names. Names are looked up by the agent, outside of the lease, and
what they meant when it started is what they mean in it until its end: a lease with a list asks no
resolver, by which it could talk to anybody.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any, Literal

from . import packet_filter
from .refusals import NotYet

PORT_MAX = 65_535
ENTRIES_MAX = 256
NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9-]{1,63}\Z")
LOOK_UP_SECONDS = 60.0
ADDRESSES_MAX = 32
"""Of one name."""
INSTALL = "apt install iptables"


Reach = Literal["none", "allow-list", "open"]
"""How far the work of a host can connect: nowhere, to what its owner lists, or outwards."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the owner allows: a network or a name, and a TCP port of it; 0: each."""

    place: IPv4Network | str
    port: int


def parse(text: str) -> Entry:
    """Return an entry of the owner's list, such as `models.example:443` or `10.1.0.0/16:*`.

    Raises: ValueError, with what is wrong.
    """
    place, colon, port = text.strip().lower().rpartition(":")
    if not colon or not place:
        raise ValueError(
            f"a name or a network with a port, such as models.example:443, not {text!r}"
        )
    number = 0 if port == "*" else int(port) if port.isascii() and port.isdigit() else -1
    if not 0 <= number <= PORT_MAX or port == "0":
        raise ValueError(f"a port from 1 to {PORT_MAX}, or * for each, not {port!r}")
    if re.fullmatch(r"[0-9./]+", place):
        try:
            return Entry(IPv4Network(place), number)
        except (AddressValueError, ValueError) as error:
            raise ValueError(f"{place} is no network: {error}") from None
    if not NAME.match(place):
        raise ValueError(f"{place!r} is no name, and no network of IPv4")
    return Entry(place, number)


def parse_all(text: str) -> list[Entry]:
    """Return the entries of a list with commas. Raises: ValueError."""
    found = [parse(each) for each in text.split(",")]
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"{ENTRIES_MAX} entries at most, not {len(found)}")
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """The way out of one lease, fixed when it starts.

    open: to every public address, beside what is allowed. allowed: networks with TCP port. names:
    with the addresses that they have in the lease. program: that sets the filter.
    """

    program: str
    open: bool
    allowed: tuple[tuple[str, int], ...] = ()
    names: tuple[tuple[str, str], ...] = ()

    def order(self) -> dict[str, Any]:
        """Return what the keeper is told of it."""
        return {"program": self.program, "open": self.open, "allowed": list(self.allowed)}

    def hosts(self) -> str:
        """Return what the work finds as /etc/hosts."""
        lines = [f"{address} {name}" for name, address in self.names]
        return "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""])


def reach_of(network: str, egress: Egress | None) -> Reach:
    """Return how far work can connect. egress: None: its network has no way out."""
    if network == "host":
        return "open"
    if egress is None:
        return "none"
    return "open" if egress.is_open else "allow-list"


class Egress:
    """What the owner of a host lets work reach. program: iptables-restore."""

    def __init__(self, program: str, entries: Sequence[Entry] = (), *, open_: bool) -> None:
        self._program = program
        self._entries = tuple(entries)
        self._open = open_
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, ...]] | None = None
        self._asked = float("-inf")
        self._names = sorted({each.place for each in entries if isinstance(each.place, str)})
        if self._names:
            self._look_up()

    @property
    def is_open(self) -> bool:
        """Tell if every public address can be reached."""
        return self._open

    @property
    def programs(self) -> tuple[str, ...]:
        """Return what has to be there for its filters to be set."""
        return (self._program,)

    @property
    def said(self) -> str:
        """Return what holds it, in words for the owner."""
        if self._open:
            return "packet filter: public addresses only"
        return f"packet filter: an allow-list of {len(self._entries)}"

    def now(self) -> Way:
        """Return the way out of a lease that starts now.

        Raises: NotYet, until names were looked up once.
        """
        with self._lock:
            found = self._found
            due = self._names and time.monotonic() > self._asked + LOOK_UP_SECONDS
        if due:
            self._look_up()
        if self._names and found is None:
            raise NotYet("the names that its network may reach are looked up")
        known = found or {}
        allowed = {
            (network, each.port)
            for each in self._entries
            for network in self._networks(each.place, known)
        }
        names = () if self._open else tuple((n, a) for n in known for a in known[n])
        return Way(self._program, self._open, tuple(sorted(allowed)), names)

    def unknown(self) -> list[str]:
        """Return the names that have no address now."""
        return [name for name in self._names if not _addresses(name)]

    @staticmethod
    def _networks(place: IPv4Network | str, known: dict[str, tuple[str, ...]]) -> Iterable[str]:
        if isinstance(place, str):
            return [f"{address}/32" for address in known.get(place, ())]
        return [str(place)]

    def _look_up(self) -> None:
        with self._lock:
            self._asked = time.monotonic()

        def look() -> None:
            before = self._found or {}
            found = {name: _addresses(name) or before.get(name, ()) for name in self._names}
            with self._lock:
                self._found = found

        threading.Thread(target=look, name="egress", daemon=True).start()


def _addresses(name: str) -> tuple[str, ...]:
    """Return the addresses of a name; none that would be the lease itself or a host's own tale."""
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return ()
    addresses = sorted({IPv4Address(about[0]) for *_, about in found})
    return tuple(str(each) for each in addresses if _is_fit(each))[:ADDRESSES_MAX]


def _is_fit(address: IPv4Address) -> bool:
    unfit = address.is_loopback or address.is_link_local or address.is_multicast
    return not (unfit or address.is_unspecified or address.is_reserved)


def find(entries: Sequence[Entry] = (), *, open_: bool) -> tuple[Egress | None, str]:
    """Return what can be set here, or None and why it cannot: then work has no way out."""
    program = shutil.which("iptables-restore", path=f"{os.defpath}:/usr/sbin:/sbin")
    if program is None:
        return None, f"no filter can be set for its network: {INSTALL}"
    if why := _try(program):
        return None, f"no filter can be set for its network: {why}"
    return Egress(program, entries, open_=open_), ""


TRIES = """
import ctypes, json, os, sys
sys.path.insert(0, sys.argv[1])
import packet_filter
kinds = packet_filter.CLONE_NEWNET | (packet_filter.CLONE_NEWUSER if os.geteuid() else 0)
if ctypes.CDLL(None).unshare(kinds):
    sys.exit("no network namespace can be made")
about = {"program": sys.argv[2], "open": True, "allowed": [["198.51.100.0/24", 1]]}
try:
    packet_filter.set_up(os.getpid(), about)
except OSError as error:
    sys.exit(str(error))
"""


def _try(program: str) -> str:
    """Set a filter in a network of nobody; return why that cannot be done, or nothing."""
    here = os.path.dirname(packet_filter.__file__)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", TRIES, here, program],
            capture_output=True,
            text=True,
            timeout=packet_filter.SECONDS_MAX,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return (done.stderr.strip().splitlines() or ["it failed"])[-1] if done.returncode else ""
