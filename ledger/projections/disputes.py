"""How rows of disputes come about."""

from __future__ import annotations

from ledger.domain.dispute_events import DisputeDecided, DisputeOpened, DisputeSaid
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models.disputes import DisputeRow, DisputeSaidRow
from ledger.rows import Rows


def project_disputes(recorded: Recorded, rows: Rows) -> None:
    """Keep DisputeRow equal to the streams of disputes."""
    match recorded.event:
        case DisputeOpened() as opened:
            rows.make(
                DisputeRow,
                dispute_id=opened.dispute_id,
                entry_id=opened.entry_id,
                account_id=opened.account_id,
                tenant_id=opened.tenant_id,
                owner_ids=sorted({each.owner_id for each in opened.contested if each.owner_id}),
                lease_id=opened.lease_id,
                starts_at=opened.window.starts_at,
                ends_at=opened.window.ends_at,
                charged_millis=opened.charged_millis,
                used_millis=opened.used_millis,
                contested_nanos=opened.money.nanos,
                currency=opened.money.currency,
                reason=opened.reason,
                opened_by=opened.opened_by,
                opened_at=opened.at,
                decide_by=opened.decide_by,
                state="open",
                given_nanos=0,
                decision="",
            )
        case DisputeSaid() as said:
            rows.make(
                DisputeSaidRow,
                key=f"{said.dispute_id}:{said.number}",
                dispute_id=said.dispute_id,
                number=said.number,
                tenant_id=said.tenant_id,
                said_by=said.said_by,
                text=said.text,
                at=said.at,
            )
        case DisputeDecided() as decided:
            row = rows.get(DisputeRow, decided.dispute_id)
            given = row.contested_nanos if decided.outcome == "upheld" else 0
            rows.change(
                DisputeRow,
                decided.dispute_id,
                state=decided.outcome,
                decision=decided.reason,
                given_nanos=given if decided.given_back is None else decided.given_back.nanos,
                decided_by=decided.decided_by,
                decided_at=decided.at,
            )


DISPUTES = Projection(
    name="ledger.disputes",
    project=project_disputes,
    tables=(DisputeRow, DisputeSaidRow),
    on=names_of(DisputeOpened, DisputeSaid, DisputeDecided),
)
