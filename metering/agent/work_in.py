"""What runs leased work on this host: processes, containers, or the jobs of a cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .clock import Clock
from .runtimes.limits import Limits
from .runtimes.mps import control, modes
from .runtimes.mps.daemons import AgentsDaemons
from .runtimes.mps.owners import OwnersDaemon
from .runtimes.mps.port import Mps
from .runtimes.process import ProcessRuntime
from .runtimes.slurm import SlurmRuntime
from .runtimes.slurm_commands import absent_programs
from .shares import PIPE_DIRECTORY, mps_runs
from .work_as import SLURM, Wish, WorkAs, WorkUnsafe, containers_of

NO_DISK = "--work-disk-gib goes not with slurm: a job need not see what the agent mounts"


def runtime_of(
    wish: Wish, how: WorkAs, state_dir: Path, *, clock: Clock, limits: Limits, mps_pipe: Path | None
) -> ProcessRuntime:
    """Return the runtime that was asked for. mps_pipe: where the owner's MPS daemon listens.

    Raises: WorkUnsafe, where it cannot be had.
    """
    if SLURM in wish.runtimes and wish.cluster is not None:
        if absent := absent_programs():
            raise WorkUnsafe(f"no work can be a job here: {', '.join(absent)} not installed")
        if limits.disk_bytes:
            raise WorkUnsafe(NO_DISK)
        return SlurmRuntime(
            state_dir,
            wish.cluster,
            clock=clock,
            users=how.users,
            confinement=how.confinement,
            limits=limits,
        )
    return ProcessRuntime(
        state_dir,
        clock=clock,
        users=how.users,
        confinement=how.confinement,
        limits=limits,
        mps=OwnersDaemon() if wish.pretended else mps_of(mps_pipe, state_dir),
        needs_mps=not wish.pretended,
        containers=containers_of(wish, state_dir),
        bare=how.bare,
    )


def mps_of(pipe: Path | None, state_dir: Path) -> Mps:
    """Return who runs the control daemons of MPS here. pipe: where its owner said that one listens.

    The agent does, as root and where NVIDIA's programs are, unless its owner's daemon already
    listens at the usual place.
    """
    folder, programs = state_dir / "mps", [shutil.which(each) for each in PROGRAMS]
    usual = mps_runs(PIPE_DIRECTORY) and not folder.exists()  # with daemons of an earlier run
    if pipe is None and not usual and os.geteuid() == 0 and all(programs):
        own, smi = map(str, programs)
        return AgentsDaemons(folder, control=own, smi=smi)
    return OwnersDaemon(pipe or PIPE_DIRECTORY)


PROGRAMS = (control.PROGRAM, modes.PROGRAM)
