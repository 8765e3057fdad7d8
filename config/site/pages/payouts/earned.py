"""What an organisation earned, by GPU, offer or month, for its page."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from ledger.access import Actor
from ledger.models import PayeeRow
from ledger.queries import payouts as queries
from listings import queries as listings
from marketplace.queries.earnings import By, earned_at

LINES_SHOWN = 100
WAYS: dict[str, str] = {"gpu": "By GPU", "offer": "By offer", "month": "By month"}
KINDS = {
    "usage": "Use of GPUs",
    "compensation": "Compensation for reclaims",
    "sla-credit": "Credit for missed terms",
    "use-credit": "Given back after disputes",
    "storage": "Storage",
    "payout-back": "Payouts that came back",
    "owner-tax": "VAT on self-billed invoices",
}


def earned_by(actor: Actor, payees: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return what each GPU, offer or month earned, of the visitor's organisation."""
    tables = []
    for each in payees:
        row: PayeeRow = each["row"]
        rows = queries.earnings(actor, account_id=row.account_id)
        if by == "month":
            lines = _by_month(rows)
        else:
            hosts: dict[UUID | None, str] = {
                host.host_id: host.title for host in listings.hosts(actor)
            }
            at = earned_at(rows, owner_id=row.tenant_id, by=cast(By, by))
            lines = [
                {
                    "name": _place(part.place.gpu_uuid, by, part.place.offer_id),
                    "href": f"/offers/{part.place.offer_id}" if part.place.offer_id else "",
                    "sub": " ".join(
                        text for text in (hosts.get(part.place.host_id, ""), part.sku) if text
                    ),
                    "part": part,
                }
                for part in at
            ]
        amounts = [line["part"].nanos for line in lines]
        tables.append(
            {
                "row": row,
                "lines": lines[:LINES_SHOWN],
                "more": max(0, len(lines) - LINES_SHOWN),
                "nanos": sum(amounts),
                "gross": sum(line["part"].gross_nanos for line in lines),
                "fee": sum(line["part"].fee_nanos for line in lines),
            }
        )
    return tables


def _place(gpu_uuid: str, by: str, offer_id: UUID | None) -> str:
    if by == "offer":
        return f"Offer {str(offer_id)[:8]}" if offer_id else "No offer"
    return gpu_uuid or "No GPU"


def _by_month(rows: list[queries.EarnedBy]) -> list[dict[str, Any]]:
    """Return a line for each month and kind of entry."""
    found: dict[tuple[str, str], list[queries.EarnedBy]] = {}
    for row in rows:
        found.setdefault((row.period, row.kind), []).append(row)
    return [
        {
            "name": period,
            "href": "",
            "sub": KINDS.get(kind, kind.replace("-", " ")),
            "part": _sum(parts),
        }
        for (period, kind), parts in found.items()
    ]


def _sum(parts: list[queries.EarnedBy]) -> queries.EarnedBy:
    first = parts[0]
    return queries.EarnedBy(
        period=first.period,
        kind=first.kind,
        lease_id=None,
        sku="",
        currency=first.currency,
        gpu_millis=sum(each.gpu_millis for each in parts),
        gross_nanos=sum(each.gross_nanos for each in parts),
        fee_nanos=sum(each.fee_nanos for each in parts),
        nanos=sum(each.nanos for each in parts),
    )
