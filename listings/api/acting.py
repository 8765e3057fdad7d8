"""Who may act on a host besides its owner: operators of the platform."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ledger.access import Actor
from ledger.eventstore.port import EventStore, Meta, load
from listings.domain.hosts import Host


def meta_on(actor: Actor, by: Meta, store: EventStore, host_id: UUID) -> Meta:
    """Return what the events of a request on a host carry.

    An operator of the platform reaches the hosts of all: it is named, and bound to no organisation.
    Raises: PlatformOnly, where somebody may see such a host and no more.
    """
    if not actor.sees_all:
        return by
    host = load(store, Host, host_id)
    if host is None or host.registered.tenant_id == actor.tenant_id:
        return by
    actor.need_platform()
    return replace(by, tenant_id=None)
