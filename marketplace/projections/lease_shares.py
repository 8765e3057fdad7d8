"""The shares of a lease, one for each host, and what the agents there are told to do."""

from __future__ import annotations

from ledger.rows import Rows
from marketplace.models.leases import LeaseRow, LeaseShareRow


def share_key(lease_id: object, host_id: object) -> str:
    return f"{lease_id}/{host_id}"


def shares_of(row: LeaseRow, rows: Rows) -> list[LeaseShareRow]:
    return [rows.get(LeaseShareRow, share_key(row.lease_id, host_id)) for host_id in row.host_ids]


def set_phase(row: LeaseRow, phase: str, rows: Rows) -> None:
    for share in shares_of(row, rows):
        rows.change(LeaseShareRow, share.pk, phase=phase, stop_at=row.stop_at)
