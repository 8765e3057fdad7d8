"""`DATABASE_URL`, read as libpq reads it: by psycopg, and tried on libpq without connecting."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

FORM = "postgresql://user:password@host:port/name"
SCHEMES = ("postgresql://", "postgres://")
PORT_MAX = 65_535
NAME_BYTES_MAX = 63
NUMBERS = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
"""What libpq takes as numbers and looks at only once it connects."""
CHECKING = ("verify-ca", "verify-full")

OURS: Mapping[str, str] = {
    # A peer that vanished is noticed within half a minute, and not after the system's two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""What we ask for where the address does not."""


class AddressUnclear(ValueError):
    """Why an address cannot be used, in one sentence without its password."""


def read_address(url: str, *, connect_seconds: int) -> dict[str, Any]:
    """Return Django's settings for an address: NAME, USER, PASSWORD, HOST, PORT and OPTIONS.

    Raises: AddressUnclear.
    """
    if not url.startswith(SCHEMES) or any("\ud800" <= each <= "\udfff" for each in url):
        raise AddressUnclear(f"must be {FORM}")  # bytes that are no UTF-8 come as halves of pairs
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        # libpq's words quote the part it stumbled over, which may be the password.
        raise AddressUnclear(_unreadable(url)) from None
    _check(given)
    # What is said here goes before a service's file, so there it is left to that.
    ours = {} if "service" in given or "PGSERVICE" in os.environ else OURS
    waits = {} if "PGCONNECT_TIMEOUT" in os.environ else {"connect_timeout": str(connect_seconds)}
    options = {**waits, **ours, **given}
    found = {
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": options.pop("port", ""),
    }
    name = options.pop("dbname", "")
    if not name and "service" not in given:
        name = _default_name(found["USER"])
    return {"NAME": name, **found, "OPTIONS": options}


def _unreadable(url: str) -> str:
    """Say what libpq stumbled over where that is the name of a parameter."""
    known = {each.keyword.decode() for each in pq.Conninfo.get_defaults()}
    _, _, asked = url.rpartition("@")[2].partition("?")
    for name in re.findall(r"(?:^|&)([a-z_]{1,40})=", asked):
        if name not in known:
            return f"has a parameter that libpq does not know: {name}"
    return f"cannot be read as libpq reads it: it must be {FORM}"


def _default_name(user: str) -> str:
    """Return the database that libpq takes where none is named: PGDATABASE, else the user's."""
    known = {each.keyword: each.val for each in pq.Conninfo.get_defaults() if each.val}
    return (known.get(b"dbname") or user.encode() or known.get(b"user", b"")).decode()


def _check(given: Mapping[str, str]) -> None:
    """Refuse what libpq would refuse on every attempt. Raises: AddressUnclear."""
    ports = given.get("port", "").split(",")
    for port in ports:
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= PORT_MAX):
            raise AddressUnclear(f"names a port that is not between 1 and {PORT_MAX}")
    for name in NUMBERS:
        if name in given and not _is_number(given[name]):
            raise AddressUnclear(f"has a {name} that is no whole number of 32 bits")
    hosts = max(len(given.get(name, "").split(",")) for name in ("host", "hostaddr"))
    if len(ports) not in (1, hosts):
        raise AddressUnclear(f"names {hosts} hosts and {len(ports)} ports")
    if len(given.get("dbname", "").encode()) > NAME_BYTES_MAX:
        raise AddressUnclear(f"names a database by more than {NAME_BYTES_MAX} bytes")
    root = given.get("sslrootcert", "")
    if given.get("sslmode") in CHECKING and root not in ("", "system") and not Path(root).is_file():
        raise AddressUnclear(f"names a certificate that is not there: {root}")
    _try(given)


def _is_number(text: str) -> bool:
    """Tell if libpq takes a text for a number: it refuses what 32 bits do not hold."""
    return re.fullmatch(r"-?[0-9]{1,10}", text) is not None and abs(int(text)) < 2**31


def _try(given: Mapping[str, str]) -> None:
    """Let libpq look at every option, towards a socket that is not there.

    Raises: AddressUnclear, with libpq's words, unless they hold the password.
    """
    places = {"host", "hostaddr", "port"}
    elsewhere = {name: value for name, value in given.items() if name not in places}
    tried = make_conninfo("", **{**elsewhere, "host": "/offpeak-is-not-here", "port": "1"})
    connected = pq.PGconn.connect_start(tried.encode())
    try:
        said = connected.get_error_message().strip()
    finally:
        connected.finish()
    if said.startswith("connection to server"):
        return
    password = given.get("password", "")
    if password and password in said:
        said = "an option of it is not one that libpq takes"
    raise AddressUnclear(f"cannot be used: {said.splitlines()[0]}")
