"""What of leased work can be reached: by whom, and as far as its owners allow."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ledger.access import Actor
from marketplace.queries.leases import consumed_lease
from marketplace.queries.running import running
from metering.domain.access import (
    Allowed,
    HostNotConnected,
    HostNotOfLease,
    Permit,
    What,
    WorkNotRunning,
    check_allowed,
    check_asked,
    read_allowed,
)
from metering.models import AgentTunnel, LeaseDoor


@dataclass(frozen=True, slots=True)
class Reach:
    """What of a lease can be reached on one of its hosts.

    allowed: by its owner; `off` as well where its agent has no tunnel open. connections: open
    into this lease, as of a few seconds ago. host_key: empty until the first shell.
    """

    host_id: UUID
    is_connected: bool
    allowed: Allowed
    runs: bool
    connections: int
    host_key: str


def reach(actor: Actor, lease_id: UUID) -> list[Reach]:
    """Return what of a lease its consumer can reach, by host.

    Raises: LeaseUnknown, NotTheConsumer.
    """
    return _reach(lease_id, consumed_lease(actor, lease_id).host_ids)


def _reach(lease_id: UUID, host_ids: list[UUID]) -> list[Reach]:
    tunnels = {row.host_id: row for row in AgentTunnel.objects.filter(host_id__in=host_ids)}
    keys = dict(LeaseDoor.objects.filter(lease_id=lease_id).values_list("host_id", "host_key"))
    runs = running([lease_id])
    found = []
    for host_id in sorted(host_ids):
        tunnel = tunnels.get(host_id)
        found.append(
            Reach(
                host_id=host_id,
                is_connected=tunnel is not None,
                allowed="off" if tunnel is None else read_allowed(tunnel.allowed),
                runs=(lease_id, host_id) in runs,
                connections=0 if tunnel is None else tunnel.connections.get(str(lease_id), 0),
                host_key=keys.get(host_id, ""),
            )
        )
    return found


def permit_for(
    actor: Actor,
    lease_id: UUID,
    *,
    what: What,
    port: int | None,
    key: str | None,
    host_id: UUID | None = None,
) -> Permit:
    """Return the permit for one connection; host_id: by default the first host of the lease.

    Raises: LeaseUnknown, NotTheConsumer, PersonNeeded, PortMissing, KeyUnreadable,
        HostNotOfLease, WorkNotRunning, HostNotConnected, AccessNotAllowed.
    """
    person = actor.need_person()
    check_asked(what, port, key)
    hosts = {each.host_id: each for each in reach(actor, lease_id)}
    chosen = hosts.get(host_id) if host_id is not None else next(iter(hosts.values()), None)
    if chosen is None:
        raise HostNotOfLease(host_id=host_id)
    if not chosen.runs:
        raise WorkNotRunning(lease_id=lease_id)
    if not chosen.is_connected:
        raise HostNotConnected(host_id=chosen.host_id)
    check_allowed(what, chosen.allowed)
    return Permit(
        lease_id=lease_id,
        host_id=chosen.host_id,
        tenant_id=actor.tenant_id,
        user_id=person,
        token_id=actor.token_id,
        what=what,
        port=port or 0,
        key=key or "",
    )
