"""Carries the files of leases: inputs and volumes to their work, and what it left from there."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from .. import checkpoints, heartbeats
from ..clock import Clock
from ..runtimes.port import Brought, Coming, Runtime, StartFailed, Work
from ..spool import Record
from ..state import LeaseState
from ..wire import Assignment
from .fetching import Fetch
from .port import VolumesUplink
from .sending import Send
from .transit import Patience
from .volumes import Volumes
from .ways import Way, remove_all_but

log = logging.getLogger(__name__)

Keep = Callable[[Sequence[Record]], bool]

LAST_MS = 30_000
"""Before the end of a lease its inputs are given up: nothing would come of its work."""
OUTPUTS_MS = 6 * 3_600_000
"""So long after its end the files of a lease are kept on the host and sent."""
LAST_WORD_MS = 60_000


class Carrier:
    """Brings inputs, into `inputs` below `state_dir`, and sends outputs; volumes both ways.

    uplink: None: it can do neither. known: leases that may go on with what came for them before;
    the rest of it is removed. every_ms: how far apart two checkpoints are that are kept and
    reported while the work runs. Every call returns at once.
    """

    def __init__(
        self,
        state_dir: Path,
        uplink: VolumesUplink | None,
        *,
        clock: Clock,
        known: Collection[UUID] = (),
        every_ms: int = checkpoints.EVERY_MS,
    ) -> None:
        self._folder, self._uplink, self._clock = state_dir / "inputs", uplink, clock
        self._every_ms = every_ms
        self._coming: dict[UUID, Way] = {}
        self._going: dict[UUID, Way] = {}
        remove_all_but(known, self._folder)
        self._volumes = Volumes(
            state_dir, uplink=uplink, clock=clock, known=known, every_ms=every_ms
        )

    def bring(self, assignment: Assignment, *, deadline_ms: int) -> Brought:
        """Return what a lease's work is given to begin with, once all of it is there.

        Raises: Coming, as long as it is under way; StartFailed.
        """
        self._volumes.begin(assignment, deadline_ms=deadline_ms - LAST_MS)
        inputs = self._inputs(assignment, deadline_ms=deadline_ms)
        return Brought(inputs, self._volumes.came(assignment))

    def _inputs(self, assignment: Assignment, *, deadline_ms: int) -> Path | None:
        """Return the folder of the inputs of a lease once all of it is there; None: it has none.

        Raises: Coming, as long as it is under way; StartFailed.
        """
        lease_id = assignment.lease_id
        if assignment.inputs is None:
            return None
        if self._uplink is None:
            raise StartFailed("this host's agent brings no files")
        way = self._coming.get(lease_id)
        if way is None:
            way = self._coming[lease_id] = Way()
            patience = Patience(self._clock, way.stop, until_ms=deadline_ms - LAST_MS)
            fetch = Fetch(lease_id, self._folder / str(lease_id), self._uplink, patience)
            way.begin(fetch.run, f"inputs {lease_id}")
        if way.failed:
            raise StartFailed(way.failed)
        if not isinstance(way.came, Path):
            raise Coming("its inputs are on their way")
        return way.came

    def sends(self, lease: LeaseState) -> bool:
        """Tell if the work of a lease left files of which it is not decided what becomes."""
        return self._sends_outputs(lease) or self._volumes.sends(lease)

    def _sends_outputs(self, lease: LeaseState) -> bool:
        ran = lease.ended and lease.ran_until_ms is not None
        return ran and bool(lease.terms.outputs) and not lease.outputs and self._uplink is not None

    def news(self, work: Work, lease: LeaseState) -> list[Record]:
        """Return what is to be reported of work that says it is safe, and is by now kept."""
        safe_ms = self._volumes.kept_ms(work, lease)
        saved = checkpoints.news(safe_ms, lease, every_ms=self._every_ms)
        return saved + heartbeats.news(work, lease)

    def send(
        self,
        works: Mapping[UUID, Work],
        leases: Mapping[UUID, LeaseState],
        runtime: Runtime,
        *,
        keep: Keep,
    ) -> None:
        """Send what work saved in volumes, and what that of leases left that are over.

        What became of the latter is noted.
        """
        self._volumes.keep_up(works, leases, runtime)
        for lease_id, lease in leases.items():
            if self._volumes.sends(lease):
                until_ms, last_ms = self._until(lease)
                decided = self._volumes.send(
                    lease_id, lease, runtime, until_ms=until_ms, last_ms=last_ms
                )
                if decided:
                    keep(decided)
            outputs = self._sends_outputs(lease)
            if outputs and (how := self._sent(lease_id, lease, runtime)) is not None:
                log.info("lease %s: what its work left: %s", lease_id, how)
                keep([{"t": "outputs", "lease": str(lease_id), "how": how}])

    def _until(self, lease: LeaseState) -> tuple[int, int]:
        """Return when sending is given up, and until when that can be told."""
        assert lease.ran_until_ms is not None
        until_ms = lease.ran_until_ms + OUTPUTS_MS
        return until_ms, max(until_ms, self._clock.now_ms()) + LAST_WORD_MS

    def _sent(self, lease_id: UUID, lease: LeaseState, runtime: Runtime) -> str | None:
        """Return what became of what a work left; None: it is under way."""
        assert self._uplink is not None
        way = self._going.get(lease_id)
        if way is None:
            folder = runtime.folder_of(lease_id)
            if folder is None:
                return "none"
            way = self._going[lease_id] = Way()
            until_ms, last_ms = self._until(lease)
            send = Send(
                lease_id,
                folder,
                lease.terms.outputs,
                lease.exit_code,
                self._uplink,
                Patience(self._clock, way.stop, until_ms=until_ms),
                Patience(self._clock, way.stop, until_ms=last_ms),
            )
            way.begin(send.run, f"outputs {lease_id}")
        return "lost" if way.failed else None if way.came is None else str(way.came)

    def let_go(self, lease: LeaseState) -> bool:
        """Drop a lease, unless what its work left is still to be sent; tell if it is dropped."""
        if self.sends(lease):
            return False
        self.drop(lease.terms.lease_id)
        self._volumes.drop(lease.terms.lease_id)
        return True

    def drop(self, lease_id: UUID) -> None:
        """Stop what is under way for a lease; what came for it is removed: its work has it."""
        self._volumes.let_start(lease_id)
        for ways in (self._coming, self._going):
            if (way := ways.pop(lease_id, None)) is not None:
                way.stop.set()
        if (came := self._folder / str(lease_id)).exists():
            work = partial(shutil.rmtree, came, ignore_errors=True)
            threading.Thread(target=work, name="files", daemon=True).start()

    def close(self) -> None:
        """Stop everything; what came so far stays, for the next start."""
        self._volumes.close()
        for way in [*self._coming.values(), *self._going.values()]:
            way.stop.set()
