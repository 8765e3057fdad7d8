"""What agents said of GPUs, and what of it holds now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from listings.domain.divisions import card_of
from listings.queries.watched import HostHealth, hosts_watched
from marketplace.queries.on_hosts import last_leases_of
from metering.domain.health import ENDS_LEASES, FAILED_STARTS, GpuFault, HealthSaid, faults
from metering.models import AgentContact, HealthEvent, WorkReport

SEEN_WITHIN = timedelta(seconds=5)
"""So much later than the work dies of it, an agent may notice what is wrong with a GPU."""
LOOKED_BACK = 2 * FAILED_STARTS
"""Leases of a GPU of which the host may have told nothing yet, or never will, among them."""


def fault_under(
    host_id: UUID, gpu_uuids: Collection[str], *, at: datetime
) -> tuple[str, GpuFault] | None:
    """Return which GPU under a lease's work had what fault when the work ended at `at`, if any.

    Only faults for which leases end. Both moments are of the agent's clock.
    """
    contact = AgentContact.objects.filter(host_id=host_id).first()
    hosts = hosts_watched(host_id)
    if contact is None or not hosts:
        return None
    (host,) = hosts
    for uuid, fault in faults(host.gpu_uuids, said_by(contact)).items():
        under = any(is_part(host, each, uuid) for each in gpu_uuids)
        begun = fault.since is not None and fault.since <= at + SEEN_WITHIN
        if under and begun and fault.reason in ENDS_LEASES:
            return uuid, fault
    return None


def failing_since(host_id: UUID, gpu_uuids: Collection[str]) -> datetime | None:
    """Return since when a GPU of a lease has a fault for which leases end; None: none has one.

    Of several the earliest, by the agent's clock. Whether the lease ends for it shows later: a
    fault has to last, and the watch looks now and then.
    """
    contact = AgentContact.objects.filter(host_id=host_id).first()
    kinds = [kind for kind in ENDS_LEASES if kind != "absent"]
    if contact is None or not HealthEvent.objects.filter(host_id=host_id, kind__in=kinds).exists():
        return None
    return min(
        (
            fault.since
            for host in hosts_watched(host_id)
            for uuid, fault in faults(host.gpu_uuids, said_by(contact)).items()
            if fault.reason in ENDS_LEASES and fault.since is not None
            if any(is_part(host, each, uuid) for each in gpu_uuids)
        ),
        default=None,
    )


def starts_failed_on(host_id: UUID, gpu_uuid: str) -> bool:
    """Tell if the host could start none of its last leases of a GPU, which had several consumers.

    A lease that was taken back or withdrawn before its start says nothing.
    """
    reports = WorkReport.objects.filter(host_id=host_id, what__in=("started", "failed"))
    last = last_leases_of(host_id, gpu_uuid, limit=LOOKED_BACK)
    told = {
        lease_id: set(reports.filter(lease_id=lease_id).values_list("what", flat=True))
        for lease_id, _ in last
    }
    tried = [(whats, tenant) for lease_id, tenant in last if (whats := told[lease_id])]
    newest = tried[:FAILED_STARTS]
    return (
        len(newest) == FAILED_STARTS
        and all(whats == {"failed"} for whats, _ in newest)
        and len({tenant for _, tenant in newest}) > 1
    )


def is_part(host: HostHealth, uuid: str, of: str) -> bool:
    """Tell if a GPU of a host is another one, or a part of it."""
    return of in (uuid, card_of(uuid), host.cards.get(uuid))


def said_by(contact: AgentContact) -> Iterable[HealthSaid]:
    """Return what an agent said of GPUs in its present run, in its order.

    Whatever was wrong before the agent was started says nothing of now: it looked anew then. Of
    one run of it all counts, however long ago it was and however much was said since.
    """
    said = HealthEvent.objects.filter(host_id=contact.host_id)
    if contact.boot_id is not None:
        later = Q(boot_id=contact.boot_id)
        if contact.registered_at is not None:
            later |= Q(at__gte=contact.registered_at)
        said = said.filter(later)
    rows = said.exclude(kind__in=("stray-process", "cleaned")).order_by("received_at", "seq")
    for row in rows.values_list("gpu_uuid", "kind", "at", "detail").iterator():
        yield HealthSaid(*row)
