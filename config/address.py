"""How the site is reached: under its base URL by others, on this machine by ourselves."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import idna

from ledger.domain.addresses import is_loopback as is_loopback

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names by which this machine calls itself; they reach nobody else."""
DEFAULT_PORTS = {"http": 80, "https": 443}
NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9-]{0,62}[a-z0-9]")


class AddressUnclear(ValueError):
    """An address that cannot be used. Its text completes the sentence "VARIABLE must be …"."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port, as a browser writes them: in small letters, without a usual port."""

    scheme: str
    host: str
    port: int | None = None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """Return the host, and the port where it is none of the usual ones."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


def read_base_url(text: str) -> str:
    """Return the origin that people type, such as `https://gpu.example`.

    Raises: AddressUnclear, also for a path: links and static files begin at `/`.
    """
    origin, rest = _split(text)
    if rest.path.strip("/"):
        raise AddressUnclear(
            f"https://host without the path {rest.path!r}: the site needs a host name of its own"
        )
    if rest.query or rest.fragment or text.endswith(("?", "#")):
        raise AddressUnclear("https://host with nothing after it")
    return str(origin)


def read_service_url(text: str) -> str:
    """Return the address of another service, without a slash at its end: paths join to it.

    Raises: AddressUnclear.
    """
    origin, rest = _split(text)
    if rest.query or rest.fragment or text.endswith(("?", "#")):
        raise AddressUnclear("https://host/path with nothing after the path")
    return f"{origin}{rest.path.rstrip('/')}"


def read_host(text: str) -> str:
    """Return a host as it stands in an address: a name in ASCII, IPv4, or IPv6 in brackets.

    Raises: AddressUnclear.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        pass
    else:
        return f"[{found}]" if found.version == 6 else str(found)
    try:
        name = idna.encode(text.removesuffix("."), uts46=True).decode() if text else ""
    except idna.IDNAError:
        name = text.lower().removesuffix(
            "."
        )  # such as a--b, which is no IDN and works all the same
    if not NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():
        raise AddressUnclear(f"the name or address of a host, not {text!r}")
    return name


def read_host_names(text: str) -> list[str]:
    """Return more names of the site, separated by commas; `.example.org` takes all below it.

    Raises: AddressUnclear.
    """
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        if each == "*":
            raise AddressUnclear("names, not *: links in mails would go where a stranger says")
        try:
            found.append("." + read_host(each[1:]) if each[0] == "." else read_host(each))
        except AddressUnclear:
            raise AddressUnclear(
                f"host names without scheme, port or path, separated by commas, not {each!r}"
            ) from None
    return found


def work_domain_fault(domain: str, base_url: str) -> str:
    """Return what the domain of leased work must be in place of this; empty: it is right.

    A page can set cookies for every name above its own: work that stood below the site, or beside
    it below one name, could give the site's visitors cookies.
    """
    if not domain or domain == "localhost":
        return ""
    if domain.startswith("[") or domain.replace(".", "").isdigit() or "." not in domain:
        return f"a domain, such as work.example, not {domain!r}"
    site = urlsplit(base_url).hostname or ""
    if site == domain or site.endswith(f".{domain}") or (domain.endswith(f".{site}") and site):
        return f"a domain apart from {site}: neither it, nor above or below it"
    return ""


def is_everywhere(host: str) -> bool:
    """Tell if a host stands for all addresses of this machine: one listens there, none calls it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def address_on_this_machine(host: str, port: int) -> str:
    """Return where a server that listens on `host` and `port` is reached from its own machine."""
    known = read_host(host)
    if is_everywhere(known):
        known = "[::1]" if ":" in known else "127.0.0.1"
    return f"http://{known}:{port}"


def _split(text: str) -> tuple[Origin, _Rest]:
    if any(letter.isspace() or not letter.isprintable() for letter in text) or "\\" in text:
        raise AddressUnclear("https://host without blanks in it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise AddressUnclear("https://host, with a port from 1 to 65535 if any") from None
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS or not parts.netloc:
        raise AddressUnclear("https://host")
    if "@" in parts.netloc:
        raise AddressUnclear("https://host without a user or password")
    if port == 0 or parts.netloc.endswith(":"):
        raise AddressUnclear("https://host, with a port from 1 to 65535 if any")
    host = read_host(parts.hostname or "")
    if is_everywhere(host):
        raise AddressUnclear(f"an address that can be called, not {host}")
    usual = port is None or port == DEFAULT_PORTS[scheme]
    origin = Origin(scheme, host, None if usual else port)
    return origin, _Rest(parts.path, parts.query, parts.fragment)


@dataclass(frozen=True, slots=True)
class _Rest:
    path: str
    query: str
    fragment: str
