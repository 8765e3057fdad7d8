"""This host's token gives way to a new one, so that one that leaked is of use for a while only.

In order: draw a number and keep it; ask with the old token; put the new one in the place of the
old; say with the new one that it is there, by which the old one is revoked. Killed after any of
these, the next try goes on: asked again with the same number, the market answers the same token.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from .credential import Enrolled, TokenFile, read_kept, write_private
from .uplink import Refused, Unreachable
from .wire_of_tokens import TokenAsked, TokenGiven, TokenTaken

UNDER_WAY = "rotating.json"
LOCK = "rotating.lock"
DAYS = 30
LOOK_SECONDS = 3600
NONCE_BYTES = 24
DAY_SECONDS = 24 * 3600

log = logging.getLogger(__name__)


class Giver(Protocol):
    """The market, as far as tokens are concerned. Each raises Unreachable or Refused."""

    def rotate(self, asked: TokenAsked) -> TokenGiven:
        """Ask for a token in place of the one that this is asked with."""
        ...

    def taken(self, taken: TokenTaken) -> TokenTaken:
        """Say that the new token is in use."""
        ...


Ask = Callable[[TokenFile], Giver]


def rotate(enrolled: Enrolled, state_dir: Path, ask: Ask) -> Enrolled:
    """Put a new token in the place of the old one, or go on where an earlier try ended.

    Raises: OSError, Unreachable, Refused, BlockingIOError where another process is at it.
    """
    with _alone(state_dir / LOCK):
        path, token = state_dir / UNDER_WAY, TokenFile(enrolled.token_file)
        begun = read_kept(path)
        nonce, old = begun.get("nonce"), begun.get("old")
        if not isinstance(nonce, str) or not isinstance(old, str):
            nonce, old = secrets.token_hex(NONCE_BYTES), _digest(token())
            write_private(path, json.dumps({"nonce": nonce, "old": old}) + "\n")
        giver = ask(token)
        if _digest(token()) == old:
            given = giver.rotate(TokenAsked(nonce=nonce, hostname=socket.gethostname()[:200]))
            write_private(enrolled.token_file, given.token + "\n")
        giver.taken(TokenTaken())
        renewed = replace(enrolled, made_at=int(time.time()))
        if Enrolled.kept_in(state_dir) is not None:
            renewed.keep(state_dir)
        path.unlink(missing_ok=True)
        return renewed


def is_due(enrolled: Enrolled, state_dir: Path, *, days: int, now: float) -> bool:
    """Tell if the token is so old, or a rotation was begun and not ended. days: 0: never."""
    if days == 0:
        return False
    return (state_dir / UNDER_WAY).exists() or enrolled.made_at + days * DAY_SECONDS <= now


@contextmanager
def rotating(
    enrolled: Enrolled | None,
    state_dir: Path,
    ask: Ask,
    *,
    days: int,
    seconds: float = LOOK_SECONDS,
) -> Iterator[None]:
    """Rotate the token meanwhile, every so many days; never for a host that was not enrolled."""
    if enrolled is None or days == 0:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_look, args=(enrolled, state_dir, ask, days, seconds, over), name="token"
    )
    thread.daemon = True
    thread.start()
    try:
        yield
    finally:
        over.set()


def _look(
    enrolled: Enrolled, state_dir: Path, ask: Ask, days: int, seconds: float, over: threading.Event
) -> None:
    while True:
        try:
            # It may have been rotated, or enrolled anew, by a command beside this agent.
            enrolled = Enrolled.kept_in(state_dir) or enrolled
            if is_due(enrolled, state_dir, days=days, now=time.time()):
                enrolled = rotate(enrolled, state_dir, ask)
                log.info("this host has a new token; the old one is revoked")
        except (OSError, ValueError, Unreachable, Refused) as error:
            log.warning("the token was not rotated, tried again in an hour: %s", error)
        if over.wait(seconds):
            return


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError("another process is at it already") from None
        yield
    finally:
        os.close(file)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
