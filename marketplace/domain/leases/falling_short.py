"""A host that can no longer do what a lease was granted on, before its work began there.

Its agent was started anew with less: a lower level, another network, no secrets. Work that runs
goes on, as it began; work that is to begin would be refused by the agent, or would begin as its
consumer did not want it. So such a lease ends, early enough for its work to go elsewhere.
"""

from __future__ import annotations

from ledger.domain.ids import HostId
from listings.domain.divisions import read_share
from listings.domain.sandboxes import AgentSays
from marketplace.domain.bids.abilities import Lacked, lacks
from marketplace.domain.facts.values import GpuRequest
from marketplace.domain.leases.lease import Lease


def falls_short(
    lease: Lease, request: GpuRequest, *, host_id: HostId, says: AgentSays
) -> Lacked | None:
    """Return what a host lacks of what a lease needs there; None: nothing, or it has begun.

    request: what the bid of the lease asks for. says: what the host's agent says of itself now.
    """
    begun = lease.state not in ("scheduled", "starting") or host_id in lease.started
    if begun or host_id not in lease.hosts:
        return None
    here = [uuid for s in lease.terms.shares if s.host_id == host_id for uuid in s.gpu_uuids]
    shares = map(read_share, here)
    by_mps = any(share is not None and share.kind == "mps" for share in shares)
    return lacks(request, lease.terms.workload, says, "mps" if by_mps else "whole")
