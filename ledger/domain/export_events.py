"""What happens to exports that are made by the market while who asked does something else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import TenantId, UserId


@dataclass(frozen=True, slots=True)
class CurrencySum:
    """What an export's rows add up to in one currency."""

    currency: str
    nanos: int


class ExportAsked(Event, name="ledger.export-asked"):
    """Somebody wants a month as a file, as of an event. Stream export-<export id>.

    everything: of all accounts, since who asked governs the platform; otherwise those of
    `tenant_id`. format: its name, such as focus-parquet.
    """

    export_id: UUID
    tenant_id: TenantId
    everything: bool
    format: str
    period: str
    position: int
    asked_by: UserId
    at: datetime


class ExportMade(Event, name="ledger.export-made"):
    """The file was written once. Written again it is the same bytes, by the same version."""

    export_id: UUID
    version: str
    rows: int
    sums: tuple[CurrencySum, ...]
    bytes: int
    sha256: str
    at: datetime


class ExportFailed(Event, name="ledger.export-failed"):
    """It could not be written; words: why. Ask for it anew."""

    export_id: UUID
    words: str
    at: datetime


ExportEvent = ExportAsked | ExportMade | ExportFailed
