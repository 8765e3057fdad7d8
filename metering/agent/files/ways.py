"""A transfer under way in a thread of its own, of which the tick only asks how far it is."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from .fetching import FetchFailed
from .transit import OutOfTime, Stopped

log = logging.getLogger(__name__)

GONE = ".gone-"
BROKEN = "the agent could not carry its files"


@dataclass(slots=True)
class Way:
    """One transfer. came: its result. failed: why there will be none.

    read_ms: for how long it read files of this host; None: nobody says.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    came: object = None
    failed: str = ""
    read_ms: int | None = None

    @property
    def is_under_way(self) -> bool:
        """Tell if something of it goes on."""
        return self.thread is not None and self.thread.is_alive()

    def begin(self, work: Callable[[], object], name: str, *, what: str = "its inputs") -> None:
        """Do it beside. what: of which it is said that it did not come in time."""

        def run() -> None:
            try:
                self.came = work()
            except Stopped:
                pass
            except FetchFailed as failed:
                self.failed = str(failed)
            except OutOfTime as late:
                self.failed = f"{what} did not come in time: {late}"
            except Exception:
                # Of our own making: the lease must hear of it all the same.
                log.exception("%s", name)
                self.failed = BROKEN

        self.thread = threading.Thread(target=run, name=name[:15], daemon=True)
        self.thread.start()


def remove_all_but(known: Collection[UUID], folder: Path) -> None:
    """Remove what lies in a folder for other leases than those, beside: it may be large.

    It is out of the way at once: a lease that comes again begins with nothing.
    """
    names = {str(each) for each in known}
    gone = []
    for old in list(folder.iterdir()) if folder.is_dir() else ():
        if old.name not in names:
            gone.append(old.rename(old.with_name(f"{GONE}{uuid4()}")))
    if gone:
        threading.Thread(target=_remove, args=[gone], name="files", daemon=True).start()


def _remove(folders: Sequence[Path]) -> None:
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)
