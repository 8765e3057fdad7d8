"""What runs leased work on this host: processes, containers, or the jobs of a cluster."""

from __future__ import annotations

from pathlib import Path

from .clock import Clock
from .runtimes.limits import Limits
from .runtimes.process import ProcessRuntime
from .runtimes.slurm import SlurmRuntime
from .runtimes.slurm_commands import absent_programs
from .work_as import SLURM, Wish, WorkAs, WorkUnsafe, containers_of

NO_DISK = "--work-disk-gib goes not with slurm: a job need not see what the agent mounts"


def runtime_of(
    wish: Wish, how: WorkAs, state_dir: Path, *, clock: Clock, limits: Limits, mps_pipe: Path
) -> ProcessRuntime:
    """Return the runtime that was asked for.

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
        mps_pipe=mps_pipe,
        needs_mps=not wish.pretended,
        containers=containers_of(wish, state_dir),
        bare=how.bare,
    )
