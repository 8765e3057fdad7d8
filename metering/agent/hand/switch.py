"""The owner's switch at the host: one word in a file of the state directory.

The agent writes it when it is asked to; where no agent runs, or none that answers, whoever may
write the file does, and the agent obeys it at its next look. A torn write leaves the word before.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..reconcile import Held
from ..state import LeaseState
from ..wire import Taking
from .taking import DRAINED, RELEASED, STRICTNESS, drained, stricter, under

log = logging.getLogger(__name__)

FILE = "hand.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the owner said last at the host. since_ms: when; 0: never.

    stated_grace: work that is released has its grace. released_ms, released_until_ms: the last
    time that everything was released; what ended in it ended by the owner's hand.
    """

    taking: Taking = "all"
    since_ms: int = 0
    stated_grace: bool = False
    released_ms: int = 0
    released_until_ms: int = 0

    def then(self, taking: Taking, *, now_ms: int, stated_grace: bool = False) -> Word:
        """Return the word after the owner said `taking`; said twice, the first time counts."""
        if taking == self.taking and (taking != "released" or stated_grace == self.stated_grace):
            return self
        said = replace(self, taking=taking, since_ms=now_ms, stated_grace=stated_grace)
        if self.taking == "released" and taking != "released":
            return replace(said, released_until_ms=now_ms)
        if taking == "released" and self.taking != "released":
            return replace(said, released_ms=now_ms, released_until_ms=0)
        return said

    def released_at(self, moment_ms: int) -> bool:
        """Tell if everything was released at a moment."""
        until_ms = self.released_until_ms or moment_ms
        return 0 < self.released_ms <= moment_ms <= until_ms


def read_word(state_dir: Path) -> Word:
    """Return what was said last; what cannot be read is no word, and is logged.

    A file that is there but makes no sense counts as a pause: nobody started new work because a
    disk was full.
    """
    try:
        said = json.loads((state_dir / FILE).read_text())
        word = Word(**said)
    except FileNotFoundError:
        return Word()
    except (OSError, ValueError, TypeError) as error:
        log.error("%s: %s; no new work is taken until it is written anew", FILE, error)
        return Word(taking="paused")
    return word if word.taking in STRICTNESS else Word(taking="paused")


def write_word(state_dir: Path, word: Word) -> None:
    """Put a word into the file, for good before this returns.

    Root may write it for an agent of another user, who must be able to read it.

    Raises: OSError.
    """
    new, place = state_dir / f"{FILE}.new", state_dir / FILE
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, json.dumps(asdict(word)).encode())
        if os.geteuid() == 0:
            owner = state_dir.stat()
            os.fchown(file, owner.st_uid, owner.st_gid)
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(new, place)
    folder = os.open(state_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Switch:
    """The word at the host as the running agent knows it, and the market's beside it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._stamp = self._stamped()
        self.word = read_word(state_dir)
        self.market: Taking = "all"

    @property
    def taking(self) -> Taking:
        """Return what may be done here: the stricter of both words."""
        return stricter(self.word.taking, self.market)

    def look(self) -> bool:
        """Read the file anew, if somebody wrote it; return whether the word is another one."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return False
        before, self._stamp, self.word = self.word, stamp, read_word(self._state_dir)
        return before != self.word

    def say(self, taking: Taking, *, now_ms: int, stated_grace: bool = False) -> Word:
        """Take the owner's word, for good.

        Raises: OSError: it could not be written; it holds for this run of the agent.
        """
        self.look()  # it may have been said in the file already, while this agent hung
        self.word = self.word.then(taking, now_ms=now_ms, stated_grace=stated_grace)
        log.warning("the owner's hand: %s", taking)
        try:
            write_word(self._state_dir, self.word)
        finally:
            self._stamp = self._stamped()
        return self.word

    def over(self, held: Held) -> Held:
        """Return a lease as it is to be treated here now.

        By the market's word nothing new is started; what runs it ends by the lease's own terms.
        """
        word = self.word
        if word.taking == "all":
            return held if self.market == "all" else under(held, "paused", since_ms=0)
        return under(held, word.taking, since_ms=word.since_ms, stated_grace=word.stated_grace)

    def ended(self, lease: LeaseState, at_ms: int, *, stopped: bool) -> str:
        """Return why work that is gone ended, where that was the owner's hand; empty: it was not.

        Also of work that ended while no agent ran, or this one hung.
        """
        self.look()
        if lease.stopping_reason in (DRAINED, RELEASED):
            return lease.stopping_reason
        if not lease.stopping_reason and self.word.released_at(at_ms):
            return RELEASED
        if stopped and not lease.stopping_reason and self.word.taking == "draining":
            sooner = drained(lease.terms, since_ms=self.word.since_ms)
            return DRAINED if sooner.deadline_ms < lease.terms.deadline_ms else ""
        return ""

    def _stamped(self) -> tuple[int, int]:
        try:
            said = (self._state_dir / FILE).stat()
        except OSError:
            return 0, 0
        return said.st_mtime_ns, said.st_ino
