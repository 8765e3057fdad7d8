"""Facts of maintenance windows: announced times in which nothing is leased on a host."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, MaintenanceId
from ledger.domain.span import Window


class MaintenanceAnnounced(Event, name="listings.maintenance-announced"):
    """A host, or some of its GPUs, will be in maintenance: nothing new is leased into the window.

    Leases that would run into it are told, and end by its start. gpu_uuids: empty: the whole host.
    On the host's stream.
    """

    host_id: HostId
    maintenance_id: MaintenanceId
    window: Window
    gpu_uuids: tuple[str, ...]
    reason: str
    at: datetime


class MaintenanceMoved(Event, name="listings.maintenance-moved"):
    """The window is another one from now on."""

    host_id: HostId
    maintenance_id: MaintenanceId
    window: Window
    at: datetime


class MaintenanceCancelled(Event, name="listings.maintenance-cancelled"):
    """There is no maintenance, or it is over sooner: what is offered is leased again."""

    host_id: HostId
    maintenance_id: MaintenanceId
    at: datetime


MaintenanceEvent = MaintenanceAnnounced | MaintenanceMoved | MaintenanceCancelled
