"""How folders become rows: one for each that is kept."""

from __future__ import annotations

from typing import cast, get_args

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.files.events import FolderEvent, FolderKept, FolderRemoved
from marketplace.models.folders import FolderRow


def project_folders(recorded: Recorded, rows: Rows) -> None:
    """Keep FolderRow equal to the streams of folders."""
    event = cast(FolderEvent, recorded.event)
    match event:
        case FolderKept():
            rows.add(
                FolderRow(
                    folder_id=event.folder_id,
                    tenant_id=event.tenant_id,
                    manifest=event.manifest,
                    title=event.title,
                    files=event.files,
                    size_bytes=event.size_bytes,
                    user_id=event.user_id,
                    lease_id=event.lease_id,
                    host_id=event.host_id,
                    exit_code=event.exit_code,
                    kept_at=event.at,
                )
            )
        case FolderRemoved():
            rows.remove(FolderRow, event.folder_id)


PROJECTIONS = (
    Projection(
        name="marketplace.folders",
        project=project_folders,
        tables=(FolderRow,),
        on=names_of(*get_args(FolderEvent)),
    ),
)
