"""How prices that are proposed for leases become rows."""

from __future__ import annotations

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.facts.price_events import (
    LeasePriceAgreed,
    LeasePriceDeclined,
    LeasePriceProposed,
    LeasePriceWithdrawn,
)
from marketplace.models.prices import PriceProposalRow


def project_price_proposals(recorded: Recorded, rows: Rows) -> None:
    """Keep PriceProposalRow equal to the streams of prices."""
    match recorded.event:
        case LeasePriceProposed() as proposed:
            rows.make(
                PriceProposalRow,
                proposal_id=proposed.proposal_id,
                lease_id=proposed.lease_id,
                tenant_id=proposed.tenant_id,
                of=list(proposed.of),
                agreed_by=[proposed.tenant_id],
                before_nanos=proposed.before.nanos_per_gpu_hour,
                price_nanos=proposed.price.nanos_per_gpu_hour,
                currency=proposed.price.currency,
                since=proposed.since,
                answer_by=proposed.answer_by,
                why=proposed.why,
                state="open",
                proposed_at=proposed.at,
            )
        case LeasePriceAgreed() as agreed:
            _agree(agreed, rows)
        case LeasePriceDeclined() as declined:
            rows.change(
                PriceProposalRow,
                declined.proposal_id,
                state="declined",
                declined_why=declined.why,
                ended_at=declined.at,
            )
        case LeasePriceWithdrawn() as withdrawn:
            rows.change(
                PriceProposalRow,
                withdrawn.proposal_id,
                state="withdrawn",
                ended_at=withdrawn.at,
            )


def _agree(agreed: LeasePriceAgreed, rows: Rows) -> None:
    row = rows.get(PriceProposalRow, agreed.proposal_id)
    by = [*row.agreed_by, agreed.tenant_id]
    if not agreed.by_all:
        rows.change(PriceProposalRow, agreed.proposal_id, agreed_by=by)
        return
    for each in rows.select(PriceProposalRow, lease_id=agreed.lease_id, state="open"):
        rows.change(PriceProposalRow, each.pk, state="overtaken", ended_at=agreed.at)
    rows.change(
        PriceProposalRow, agreed.proposal_id, agreed_by=by, state="agreed", ended_at=agreed.at
    )


PROJECTIONS: tuple[Projection, ...] = (
    Projection(
        name="marketplace.prices",
        project=project_price_proposals,
        tables=(PriceProposalRow,),
        on=names_of(LeasePriceProposed, LeasePriceAgreed, LeasePriceDeclined, LeasePriceWithdrawn),
    ),
)
