"""The control daemons that this agent runs: one for each card on which it has work by MPS.

One server serves all shares of a card, as servers beside each other would take turns on it, and
each would have its part of the compute only while it is its turn. `-multiuser-server` lets it serve
the accounts of several leases at once; only root can. Its limits are set before work begins, by a
socket that work cannot write to, and while it lends the card nothing but the server can use it.

What is about to be done to a card is written down first, and everything else is asked of the
kernel and of the daemon. So after a kill at any moment the next run goes on with a daemon that
work uses, and ends one that none does. Nothing here waits: daemons come and go in threads.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ...shares import cards_of, is_mps
from ..family import Stat, stat_of
from ..keeper import write_json
from ..port import NotYet, StartFailed
from ..users import make_passable
from . import modes
from .control import Control, ControlFailed
from .limits import CardLimits, limits_of
from .port import COMPUTE, MEMORY, WATCHED, Enforces

log = logging.getLogger(__name__)

ASKED_SECONDS = 60.0
"""So long after it was asked for last a daemon is kept that no work uses yet."""
AGAIN_SECONDS = 10.0
"""What failed with nobody waiting for it is tried again so long after it was begun."""
KEPT_BY = "MPS, set by the agent"


@dataclass(frozen=True, slots=True)
class Card:
    """A card that is lent by MPS. name: of its folder. mode: its compute mode before that."""

    uuid: str
    name: str
    mode: str


@dataclass(frozen=True, slots=True)
class Served:
    """What the daemon of a card is known to hold."""

    daemon: Stat
    limits: CardLimits


class Errand(threading.Thread):
    """Something that takes a while, begun at that monotonic second.

    failure: why it came to nothing; empty: it did not. told: that is in the log.
    """

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__(name="mps", daemon=True)
        self._do = do
        self.begun = time.monotonic()
        self.failure = ""
        self.told = False
        self.start()

    def run(self) -> None:
        try:
            self._do()
        except (ControlFailed, modes.ModeNotSet, OSError) as error:
            self.failure = str(error) or type(error).__name__


class AgentsDaemons:
    """Keeps its record and the daemons' files in `folder`; one agent's, under whose lock it is.

    control, smi: NVIDIA's programs.
    """

    def __init__(self, folder: Path, *, control: str, smi: str) -> None:
        self._folder = folder
        self._program, self._smi = control, smi
        self._cards: dict[str, Card] = {}
        self._served: dict[str, Served] = {}
        self._errands: dict[str, Errand] = {}
        self._asked: dict[str, tuple[float, frozenset[str]]] = {}
        self._children: dict[str, int] = {}
        self._record = folder / "cards.json"
        self._keeping = threading.Lock()
        with suppress(FileNotFoundError, ValueError):
            found = json.loads(self._record.read_text())["cards"]
            self._cards = {each["uuid"]: Card(**each) for each in found}

    def enforces(self) -> Enforces:
        return ((COMPUTE, KEPT_BY), (MEMORY, f"{KEPT_BY}, each process; {WATCHED}"))

    def ready(self, uuids: Collection[str], held: Collection[str]) -> None:
        cards = cards_of(filter(is_mps, uuids))
        for card in cards_of(uuids):
            if card not in cards and (card in self._cards or card in self._errands):
                raise NotYet(f"MPS is being ended on {card}")
        if not cards:
            return
        if len(cards) > 1:
            raise StartFailed("work can have a share by MPS of one card only")
        (card,) = cards
        self._asked[card] = time.monotonic(), frozenset(uuids)
        limits = limits_of(card, [*uuids, *held])
        assert limits is not None
        errand = self._errands.get(card)
        if errand is not None and errand.is_alive():
            raise NotYet(f"MPS is being started on {card}")
        if errand is not None:
            del self._errands[card]
            if errand.failure:
                self._asked.pop(card, None)
                raise StartFailed(f"MPS on {card}: {errand.failure}")
        if not self._holds(card, limits):
            self._errands[card] = Errand(partial(self._serve, card, limits))
            raise NotYet(f"MPS is being started on {card}")
        del self._asked[card]

    def pipe_of(self, uuids: Collection[str]) -> Path:
        cards = (self._cards.get(card) for card in cards_of(filter(is_mps, uuids)))
        card = next(filter(None, cards), None)
        return self._folder / "none" if card is None else self._control(card).pipe

    def tidy(self, held: Collection[str]) -> None:
        now = time.monotonic()
        wanted = {*held}
        for card, (asked, uuids) in list(self._asked.items()):
            if now - asked > ASKED_SECONDS:
                del self._asked[card]
            else:
                wanted |= uuids
        for card in {**self._cards, **self._errands}:
            self._reap(card)
            if card in self._asked or self._is_at_work(card, now):
                continue  # who asked for it is told what became of it
            if card not in self._cards:
                continue
            limits = limits_of(card, wanted)
            if limits is None:
                self._errands[card] = Errand(partial(self._end, card))
            elif not self._holds(card, limits):
                self._errands[card] = Errand(partial(self._serve, card, limits))
            else:
                self._control(self._cards[card]).shorten_logs()

    def _is_at_work(self, card: str, now: float) -> bool:
        """Tell if an errand for a card is under way, or failed so lately that none is tried."""
        errand = self._errands.get(card)
        if errand is None:
            return False
        if not errand.is_alive() and errand.failure and not errand.told:
            errand.told = True
            log.warning("MPS on %s: %s", card, errand.failure)
        if errand.is_alive() or (errand.failure and now - errand.begun < AGAIN_SECONDS):
            return True
        del self._errands[card]
        return False

    def _holds(self, card: str, limits: CardLimits) -> bool:
        """Tell if the daemon of a card lives, and was seen to have these limits."""
        served = self._served.get(card)
        if served is None or served.limits != limits:
            return False
        now = stat_of(served.daemon.pid)
        return now is not None and now.ticks == served.daemon.ticks and now.state not in "ZX"

    def _reap(self, card: str) -> None:
        """Collect a daemon that ended, so that it leaves no zombie."""
        child = self._children.get(card)
        with suppress(ChildProcessError):  # somebody collected it for us
            if child is None or os.waitpid(child, os.WNOHANG)[0] == 0:
                return
        self._children.pop(card, None)

    def _control(self, card: Card) -> Control:
        return Control(self._program, self._folder / card.name, card.uuid)

    # --- in threads, one at a time for each card -------------------------------------------------

    def _serve(self, uuid: str, limits: CardLimits) -> None:
        """Bring up the daemon of a card, or take it up, with these limits read back."""
        self._served.pop(uuid, None)
        card = self._cards.get(uuid)
        is_new = card is None
        if card is None:
            make_passable(self._folder)
            card = Card(uuid, secrets.token_hex(4), modes.mode_of(self._smi, uuid))
            self._keep(card)
        control = self._control(card)
        try:
            daemon = control.daemon()
            if daemon is None or not (control.pipe / "control").exists():
                control.kill()  # servers that lost their daemon have the card
                modes.set_mode(self._smi, uuid, modes.EXCLUSIVE)
                self._reap(uuid)
                self._children[uuid] = control.start()
                log.info("MPS on %s: started", uuid)
            control.close()
            modes.set_mode(self._smi, uuid, modes.EXCLUSIVE)
            control.limit(limits)
            daemon = control.daemon()
            if daemon is None:
                raise ControlFailed("its daemon ended")
        except (ControlFailed, modes.ModeNotSet, OSError):
            if is_new:  # else work may use it, limited as it was
                with suppress(ControlFailed, modes.ModeNotSet, OSError):
                    self._end(uuid)
            raise
        self._served[uuid] = Served(daemon, limits)

    def _end(self, uuid: str) -> None:
        """End the daemon of a card, and leave the card as it was before."""
        self._served.pop(uuid, None)
        card = self._cards[uuid]
        control = self._control(card)
        control.end()
        modes.set_mode(self._smi, uuid, card.mode)
        shutil.rmtree(control.folder, ignore_errors=True)
        self._reap(uuid)
        self._keep(card, gone=True)
        log.info("MPS on %s: ended", uuid)

    def _keep(self, card: Card, *, gone: bool = False) -> None:
        with self._keeping:
            cards = {**self._cards, card.uuid: card}
            if gone:
                del cards[card.uuid]
            write_json(self._record, {"cards": [asdict(each) for each in cards.values()]})
            self._cards = cards
