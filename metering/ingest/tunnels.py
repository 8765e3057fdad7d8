"""What the ends of tunnels ask and tell: permits, who holds which tunnel, who may go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.core import signing
from django.utils import timezone

from ledger.access import actor_of_token
from ledger.access.standing import Bearer, who_may_still
from ledger.domain.refusal import Refusal
from ledger.domain.tokens import Scope
from listings.domain.hosts import HostIsRetired
from listings.retired import retired_among
from marketplace.queries.running import running
from metering.domain.access import (
    PERMIT_SECONDS,
    Allowed,
    HostNotConnected,
    Permit,
    PermitNotGood,
    PersonMayNoLonger,
    WorkNotRunning,
)
from metering.models import AgentTunnel, LeaseDoor

SALT = "offpeak.tunnel"
SCOPE_OF_PEOPLE: Scope = "leases:write"
SCOPE_OF_AGENTS: Scope = "agent"


@dataclass(frozen=True, slots=True)
class Agent:
    """Whose tunnel it is: the agent of one host, by the token it proved itself with."""

    host_id: UUID
    tenant_id: UUID
    token_id: UUID

    @property
    def bearer(self) -> Bearer:
        """Return who that is."""
        return Bearer(self.tenant_id, None, self.token_id)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has the end of a host's tunnel, and where others reach it."""

    process: UUID
    address: str


def sign(permit: Permit) -> str:
    """Return a permit as a text that only this market can have made."""
    return signing.dumps(permit.to_json(), salt=SALT, compress=True)


def read_permit(text: str) -> Permit:
    """Return what a signed permit allows.

    Raises: PermitNotGood.
    """
    try:
        said = signing.loads(text, salt=SALT, max_age=timedelta(seconds=PERMIT_SECONDS))
    except signing.BadSignature:
        raise PermitNotGood() from None
    return Permit.from_json(said)


def check_now(permit: Permit) -> Holder:
    """Return who holds the tunnel that a permit leads through, where it may be used now.

    Raises: PersonMayNoLonger, WorkNotRunning, HostNotConnected.
    """
    if refusals := refusals_of([permit]):
        raise refusals[permit]
    row = AgentTunnel.objects.filter(host_id=permit.host_id).first()
    if row is None:
        raise HostNotConnected(host_id=permit.host_id)
    return Holder(row.holder, row.address)


def refusals_of(permits: Collection[Permit]) -> dict[Permit, Refusal]:
    """Return why those of these permits that may not go on may not."""
    now = timezone.now()
    runs = running({each.lease_id for each in permits})
    may = who_may_still({_bearer(each) for each in permits}, SCOPE_OF_PEOPLE, now=now)
    found: dict[Permit, Refusal] = {}
    for permit in permits:
        if _bearer(permit) not in may:
            found[permit] = PersonMayNoLonger()
        elif (permit.lease_id, permit.host_id) not in runs:
            found[permit] = WorkNotRunning(lease_id=permit.lease_id)
    return found


def _bearer(permit: Permit) -> Bearer:
    return Bearer(permit.tenant_id, permit.user_id, permit.token_id)


def agent_of(token: str) -> Agent:
    """Return whose agent has this token.

    Raises: what `actor_of_token` does, ScopeMissing, HostIsRetired.
    """
    actor = actor_of_token(token, now=timezone.now())
    actor.need_scope(SCOPE_OF_AGENTS)
    assert actor.host_id is not None and actor.token_id is not None
    if retired_among({actor.host_id}):
        raise HostIsRetired(host_id=actor.host_id)
    return Agent(actor.host_id, actor.tenant_id, actor.token_id)


def agents_barred(agents: Collection[Agent]) -> set[Agent]:
    """Return those of these agents whose token does not work any more, or whose host is retired."""
    bearers = {each.bearer for each in agents}
    may = who_may_still(bearers, SCOPE_OF_AGENTS, now=timezone.now())
    gone = retired_among({each.host_id for each in agents})
    return {each for each in agents if each.bearer not in may or each.host_id in gone}


def note_opened(agent: Agent, holder: Holder, allowed: Allowed, *, now: datetime) -> None:
    """Note who holds the tunnel of a host from now on, and what its owner allows."""
    AgentTunnel.objects.update_or_create(
        host_id=agent.host_id,
        defaults={
            "tenant_id": agent.tenant_id,
            "holder": holder.process,
            "address": holder.address,
            "allowed": allowed,
            "connected_at": now,
            "connections": {},
        },
    )


def note_ended(host_id: UUID, holder: Holder) -> None:
    """Note that a host has no tunnel any more, unless another process holds one meanwhile."""
    AgentTunnel.objects.filter(host_id=host_id, holder=holder.process).delete()


def note_connections(
    holder: Holder, counts: Mapping[UUID, Mapping[str, int]], hosts: Iterable[UUID]
) -> None:
    """Note how many connections are open into which lease on each of these hosts."""
    for host_id in hosts:
        rows = AgentTunnel.objects.filter(host_id=host_id, holder=holder.process)
        rows.update(connections=dict(counts.get(host_id, {})))


def note_host_key(lease_id: UUID, host_id: UUID, host_key: str, *, now: datetime) -> None:
    """Keep the public key by which the work of a lease proves itself."""
    known = LeaseDoor.objects.filter(lease_id=lease_id, host_id=host_id, host_key=host_key)
    if not known.exists():
        LeaseDoor.objects.update_or_create(
            lease_id=lease_id, host_id=host_id, defaults={"host_key": host_key, "told_at": now}
        )
