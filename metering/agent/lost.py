"""Why work is gone that nobody saw end: the host was restarted under it, or something else.

By the kernel's own id of its run, which the agent wrote down as the work began: so it is told
alike of every runtime, whatever of its own records a power cut left. What a runtime finds then (no
folder, a container that podman forgot, a job that the cluster gave up) says nothing of the cause.
"""

from __future__ import annotations

from .clock import kernel_boot_id
from .runtimes.port import Work
from .state import LeaseState
from .wire import HOST_RESTARTED


def why(lease: LeaseState, work: Work | None) -> str:
    """Return what is reported of a lease whose work is lost. work: None: no trace of it is left."""
    if lease.kernel and lease.kernel != kernel_boot_id():
        return HOST_RESTARTED
    return "its work is gone" if work is None else work.detail
