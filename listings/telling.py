"""What owners are told of their hosts: silence, and GPUs that are withheld."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ledger.commands.notices import give_notice
from ledger.domain.notices import To, is_news
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from listings.domain.events import GpuQuarantined, HostFellSilent
from listings.domain.hosts import Host

Clock = Callable[[], datetime]


def tell_of_health(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell an owner that a host is silent, or that a GPU has a fault: neither is leased."""
    event = recorded.event
    assert isinstance(event, HostFellSilent | GpuQuarantined)
    host = load(store, Host, event.host_id)
    if host is None or host.is_retired or not is_news(event.at, clock):
        return
    facts = {"host_id": str(event.host_id), "event": event.name}
    match event:
        case HostFellSilent():
            title = f"{host.registered.title} is not heard any more"
            body = (
                f"Its agent was heard last at {event.heard_at:%d %B %H:%M} UTC. Nothing of the "
                "host is leased until it is heard again."
            )
            facts["heard_at"] = event.heard_at.isoformat()
        case GpuQuarantined():
            title = f"A GPU of {host.registered.title} is withheld"
            body = (
                f"{event.gpu_uuid}: {event.reason.replace('-', ' ')}. {event.detail[:300]}\n\n"
                "It is leased again once it was without fault for long enough."
            )
            facts |= {"gpu_uuid": event.gpu_uuid, "reason": event.reason}
    give_notice(
        store,
        to=To(tenant_id=host.registered.tenant_id),
        topic="health",
        key=str(recorded.id),
        title=_line(title),
        body="".join(each if each.isprintable() or each == "\n" else " " for each in body),
        link=f"/owner/hosts/{event.host_id}/health",
        facts=facts,
        by=Meta.because(recorded, policy="tell-of-health"),
        now=event.at,
    )


def _line(title: str) -> str:
    return "".join(each if each.isprintable() else " " for each in title)[:200]


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells owners of their hosts. clock: None: nobody is told."""
    return (
        Policy(
            name="listings.tell-of-health",
            react=partial(tell_of_health, clock=clock),
            on=names_of(HostFellSilent, GpuQuarantined),
        ),
    )
