"""Where a folder to send comes from: this machine, a git repository or a bucket.

What is elsewhere is fetched here, by whoever asks and with their own rights, and then sent like any
folder: neither the market nor a host ever asks an address that somebody else chose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from . import from_git, from_s3
from .from_git import Fetched
from .session import Session
from .spoken import NotUnderstood

TITLE_LENGTH_MAX = 120
SHOWN_MAX = 20


@contextmanager
def at_hand(session: Session, said: str) -> Iterator[Fetched]:
    """Give the folder that is meant. Its origin is empty where it is one of this machine.

    Raises: NotUnderstood, Problem.
    """
    if not said.startswith((from_git.PREFIX, from_s3.PREFIX)):
        if "://" in said:
            raise NotUnderstood(
                f"{said} is no folder that this machine could fetch: write a folder, "
                "git+https://host/owner/repo@ref#folder or s3://bucket/prefix. A single file by "
                "https is fetched by hosts: offpeak run --fetch-there."
            )
        yield Fetched(Path(said), "")
        return
    with TemporaryDirectory(prefix="offpeak-source-") as into:
        if said.startswith(from_git.PREFIX):
            repository = from_git.read(said)
            session.printer.say(f"Fetching {repository.url}.")
            found = from_git.fetch(repository, Path(into))
        else:
            bucket = from_s3.read(said)
            session.printer.say(f"Fetching {bucket.origin}.")
            found = from_s3.fetch(bucket, Path(into))
        session.printer.say(f"Fetched {found.origin}.")
        for path, why in found.left_out[:SHOWN_MAX]:
            session.printer.say(f"Left out: {path} ({why})")
        if len(found.left_out) > SHOWN_MAX:
            session.printer.say(f"Left out besides: {len(found.left_out) - SHOWN_MAX} more.")
        yield found


def title_of(found: Fetched) -> str:
    """Return the title of a folder: whence it came, of a long one its end; empty for our own."""
    origin = found.origin
    return origin if len(origin) <= TITLE_LENGTH_MAX else "…" + origin[1 - TITLE_LENGTH_MAX :]
