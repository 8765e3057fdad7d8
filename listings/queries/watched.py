"""Every host as the market counts on it: whether it is heard, what of it is unfit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from ledger.domain.ids import MaintenanceId
from ledger.domain.span import Window
from listings.models import HostRow


@dataclass(frozen=True, slots=True)
class Planned:
    """A maintenance window. gpu_uuids: empty: the whole host."""

    maintenance_id: MaintenanceId
    window: Window
    gpu_uuids: tuple[str, ...]
    reason: str
    announced_at: datetime


def planned_of(row: HostRow) -> tuple[Planned, ...]:
    """Return the maintenance windows of a host that were not cancelled, in order of time."""
    found = [
        Planned(
            maintenance_id=MaintenanceId(UUID(key)),
            window=Window(
                datetime.fromisoformat(said["starts_at"]), datetime.fromisoformat(said["ends_at"])
            ),
            gpu_uuids=tuple(said["gpu_uuids"]),
            reason=said["reason"],
            announced_at=datetime.fromisoformat(said["at"]),
        )
        for key, said in row.maintenance.items()
    ]
    return tuple(sorted(found, key=lambda each: (each.window.starts_at, each.maintenance_id)))


@dataclass(frozen=True, slots=True)
class HostHealth:
    """What the market counts on of a host. silent_since: see `HostRow`; unfit: GPUs, with why.

    takings: by the owner's switch at the host and by that on the market. says: its agent's level
    and abilities. cards: of MIG instances that its owner made. relapses: of unfit GPUs.
    """

    host_id: UUID
    silent_since: datetime | None
    reported_at: datetime | None
    gpu_uuids: frozenset[str]
    unfit: dict[str, str]
    takings: tuple[str, str] = ("all", "all")
    says: tuple[str, ...] = ()
    cards: Mapping[str, str] = field(default_factory=dict)
    relapses: Mapping[str, int] = field(default_factory=dict)
    maintenance: tuple[Planned, ...] = ()


def hosts_watched(only: UUID | None = None) -> list[HostHealth]:
    """Return every host that is not retired, or that one, as the market sees its health."""
    rows = HostRow.objects.exclude(state="retired").order_by("host_id")
    return [
        HostHealth(
            host_id=row.host_id,
            silent_since=row.silent_since,
            reported_at=row.reported_at,
            gpu_uuids=frozenset(gpu["uuid"] for gpu in row.gpus),
            unfit={uuid: said["reason"] for uuid, said in row.unfit.items()},
            relapses={uuid: said.get("relapses", 0) for uuid, said in row.unfit.items()},
            maintenance=planned_of(row),
            takings=(row.at_host, row.on_market),
            says=(row.sandbox, *row.abilities),
            cards={gpu["uuid"]: gpu["card_uuid"] for gpu in row.gpus if gpu.get("card_uuid")},
        )
        for row in (rows if only is None else rows.filter(host_id=only))
    ]
