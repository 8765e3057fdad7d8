"""How rows of disputes come about."""

from __future__ import annotations

from ledger.domain.dispute_events import DisputeDecided, DisputeOpened
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models.disputes import DisputeRow
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
                decision="",
            )
        case DisputeDecided() as decided:
            rows.change(
                DisputeRow,
                decided.dispute_id,
                state=decided.outcome,
                decision=decided.reason,
                decided_by=decided.decided_by,
                decided_at=decided.at,
            )


DISPUTES = Projection(
    name="ledger.disputes",
    project=project_disputes,
    tables=(DisputeRow,),
    on=names_of(DisputeOpened, DisputeDecided),
)
