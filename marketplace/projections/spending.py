"""How what bids set aside and leases are charged becomes rows of spending, with their budgets."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC
from typing import Any
from uuid import UUID

from ledger.domain.events import HoldReleased, HoldResized, StorageCharged, UsageCaptured
from ledger.domain.money import Rate
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.bids.bid import hold_of
from marketplace.domain.facts.events import BidPlaced, LeaseScheduled
from marketplace.domain.spending.events import (
    ComparisonSet,
    SpendingBudgetEnded,
    SpendingBudgetSet,
    SpendingDrawn,
    SpendingGrantAsked,
    SpendingGrantDecided,
    SpendingThresholdMet,
)
from marketplace.domain.spending.savings import dedicated_per_hour
from marketplace.domain.volumes.events import VolumeCreated
from marketplace.models.spending import (
    ComparisonRow,
    SpendingBidRow,
    SpendingBudgetRow,
    SpendingCrossingRow,
    SpendingDayRow,
    SpendingGrantRow,
    SpendingReadRow,
    SpendingVolumeRow,
)

STORAGE = "storage"
"""What volumes have in the place of a kind of work; there is no work of that name."""


def project_spending(recorded: Recorded, rows: Rows) -> None:
    """Keep the rows of spending equal to bids, holds, charges and budgets.

    What a bid sets aside is read of the bid itself, since its hold is recorded before it.
    """
    match recorded.event:
        case BidPlaced() as placed:
            _place(placed, recorded, rows)
        case LeaseScheduled() as lease:
            if rows.find(SpendingBidRow, lease.bid_id) is not None:
                rows.change(
                    SpendingBidRow,
                    lease.bid_id,
                    lease_id=lease.lease_id,
                    gpu_model=lease.gpu_model,
                )
        case HoldResized() as resized:
            _hold(resized.hold_id, resized.money.nanos, recorded, rows)
        case HoldReleased() as released:
            _hold(released.hold_id, None, recorded, rows)
        case UsageCaptured() as captured:
            _charge(captured, recorded, rows)
        case VolumeCreated() | StorageCharged() as kept:
            _keep(kept, recorded, rows)
        case SpendingDrawn() as drawn:
            row = _read(drawn.tenant_id, rows)
            counted = {"pending": drawn.number} if not drawn.step else {"drawn": drawn.number}
            rows.change(SpendingReadRow, row.tenant_id, touched=recorded.position, **counted)
        case SpendingBudgetSet() as terms:
            _set(terms, recorded, rows)
        case SpendingBudgetEnded() as ended:
            rows.change(SpendingBudgetRow, ended.budget_id, ended_at=ended.at)
        case SpendingGrantAsked() | SpendingGrantDecided() as grant:
            _grant(grant, recorded, rows)
        case ComparisonSet() as figures:
            _compare(figures, rows)
        case SpendingThresholdMet() as met:
            _meet(met, rows)
        case _:
            return


def _place(placed: BidPlaced, recorded: Recorded, rows: Rows) -> None:
    most = hold_of(placed, placed.limit).nanos
    rows.make(
        SpendingBidRow,
        bid_id=placed.bid_id,
        tenant_id=placed.tenant_id,
        subscriber_id=placed.subscriber_id,
        user_id=placed.user_id,
        project=placed.workload.project,
        workload_kind=placed.workload.kind,
        currency=placed.limit.currency,
        hold_nanos=most,
        left_nanos=most,
    )
    row = _read(placed.tenant_id, rows)
    drawn = max(row.drawn, row.pending)
    rows.change(SpendingReadRow, row.tenant_id, drawn=drawn, touched=recorded.position)


def _read(tenant_id: UUID, rows: Rows) -> SpendingReadRow:
    found = rows.find(SpendingReadRow, tenant_id)
    if found is None:
        found = SpendingReadRow(tenant_id=tenant_id)
        rows.add(found)
    return found


def _hold(hold_id: UUID, nanos: int | None, recorded: Recorded, rows: Rows) -> None:
    """Note what a hold sets aside from now on; None: nothing any more."""
    row = rows.find(SpendingBidRow, hold_id)
    if row is None:
        return  # of no bid that came
    hold, left = nanos, 0
    if nanos is None:
        hold = 0
    else:
        left = max(0, nanos - row.captured_nanos)
    rows.change(SpendingBidRow, row.bid_id, hold_nanos=hold, left_nanos=left)
    rows.change(SpendingReadRow, _read(row.tenant_id, rows).tenant_id, touched=recorded.position)


def _charge(captured: UsageCaptured, recorded: Recorded, rows: Rows) -> None:
    row = rows.find(SpendingBidRow, captured.hold_id)
    if row is None:
        return
    charged, total = captured.charged.nanos, row.captured_nanos + captured.charged.nanos
    left = max(0, row.hold_nanos - total)
    rows.change(SpendingBidRow, row.bid_id, captured_nanos=total, left_nanos=left)
    rows.change(SpendingReadRow, _read(row.tenant_id, rows).tenant_id, touched=recorded.position)
    day = captured.window.starts_at.astimezone(UTC).date()
    key = f"{row.bid_id}:{day.isoformat()}"
    known = rows.find(SpendingDayRow, key)
    if known is not None:
        rows.change(
            SpendingDayRow,
            key,
            spent_nanos=known.spent_nanos + charged,
            gpu_millis=known.gpu_millis + captured.gpu_millis,
        )
        return
    rows.make(
        SpendingDayRow,
        key=key,
        day=day,
        bid_id=row.bid_id,
        lease_id=captured.lease_id,
        tenant_id=row.tenant_id,
        subscriber_id=row.subscriber_id,
        user_id=row.user_id,
        project=row.project,
        workload_kind=row.workload_kind,
        gpu_model=row.gpu_model,
        currency=captured.charged.currency,
        spent_nanos=charged,
        gpu_millis=captured.gpu_millis,
    )


def _keep(kept: VolumeCreated | StorageCharged, recorded: Recorded, rows: Rows) -> None:
    """Note whose a volume is, and what is charged for it."""
    if isinstance(kept, StorageCharged):
        _store(kept, recorded, rows)
        return
    whose = {"subscriber_id": kept.subscriber_id, "user_id": kept.user_id}
    if rows.find(SpendingVolumeRow, kept.volume_id) is None:
        volume_id, tenant_id = kept.volume_id, kept.tenant_id
        rows.make(SpendingVolumeRow, volume_id=volume_id, tenant_id=tenant_id, **whose)
    else:  # one of that name was removed before
        rows.change(SpendingVolumeRow, kept.volume_id, **whose)


def _store(charged: StorageCharged, recorded: Recorded, rows: Rows) -> None:
    """Count what was kept in a volume as spent by whoever made it; a piece lies in one day."""
    volume = rows.find(SpendingVolumeRow, charged.volume_id)
    if volume is None:
        return
    rows.change(SpendingReadRow, _read(volume.tenant_id, rows).tenant_id, touched=recorded.position)
    day = charged.window.starts_at.astimezone(UTC).date()
    currency = charged.charged.currency
    key = f"{volume.volume_id}:{day.isoformat()}:{currency}"
    known = rows.find(SpendingDayRow, key)
    if known is not None:
        spent = known.spent_nanos + charged.charged.nanos
        rows.change(SpendingDayRow, key, spent_nanos=spent)
        return
    rows.make(
        SpendingDayRow,
        key=key,
        day=day,
        bid_id=None,
        lease_id=None,
        volume_id=volume.volume_id,
        tenant_id=volume.tenant_id,
        subscriber_id=volume.subscriber_id,
        user_id=volume.user_id,
        project="",
        workload_kind=STORAGE,
        gpu_model="",
        currency=currency,
        spent_nanos=charged.charged.nanos,
        gpu_millis=0,
    )


def _set(terms: SpendingBudgetSet, recorded: Recorded, rows: Rows) -> None:
    told: dict[str, Any] = {
        "title": terms.title,
        "amount_nanos": terms.amount.nanos,
        "period": terms.period,
        "roll_over": terms.roll_over,
        "unused_ppm": terms.unused_ppm,
        "thresholds": [asdict(each) for each in terms.thresholds],
        "zone": terms.zone,
        "set_at": terms.at,
        "set_by": terms.by,
    }
    row = _read(terms.tenant_id, rows)
    rows.change(SpendingReadRow, row.tenant_id, touched=recorded.position)
    if rows.find(SpendingBudgetRow, terms.budget_id) is not None:
        rows.change(SpendingBudgetRow, terms.budget_id, **told)
        return
    rows.make(
        SpendingBudgetRow,
        budget_id=terms.budget_id,
        tenant_id=terms.tenant_id,
        scope=terms.scope,
        subject=terms.subject,
        currency=terms.amount.currency,
        since=terms.at,
        **told,
    )


def _grant(
    grant: SpendingGrantAsked | SpendingGrantDecided, recorded: Recorded, rows: Rows
) -> None:
    row = _read(grant.tenant_id, rows)
    rows.change(SpendingReadRow, row.tenant_id, touched=recorded.position)
    if isinstance(grant, SpendingGrantDecided):
        rows.change(
            SpendingGrantRow,
            grant.grant_id,
            state="approved" if grant.approved else "declined",
            decided_by=grant.by,
            decided_at=grant.at,
        )
        return
    rows.make(
        SpendingGrantRow,
        grant_id=grant.grant_id,
        budget_id=grant.budget_id,
        tenant_id=grant.tenant_id,
        money_nanos=grant.money.nanos,
        currency=grant.money.currency,
        starts_at=grant.starts_at,
        until=grant.until,
        why=grant.why,
        alone=grant.alone,
        state="approved" if grant.alone else "asked",
        asked_by=grant.by,
        asked_at=grant.at,
    )


def _meet(met: SpendingThresholdMet, rows: Rows) -> None:
    rows.make(
        SpendingCrossingRow,
        key=f"{met.budget_id}:{met.period_starts_at.date()}:{met.at_ppm}:{met.action}",
        budget_id=met.budget_id,
        tenant_id=met.tenant_id,
        period_starts_at=met.period_starts_at,
        at_ppm=met.at_ppm,
        action=met.action,
        used_nanos=met.used.nanos,
        limit_nanos=met.limit.nanos,
        at=met.at,
    )


def _compare(figures: ComparisonSet, rows: Rows) -> None:
    key = f"{figures.gpu_model}:{figures.currency}"
    told: dict[str, Any] = {
        "cloud_nanos_per_gpu_hour": _nanos_of(figures.cloud),
        "purchase_nanos": None if figures.purchase is None else figures.purchase.nanos,
        "years": figures.years,
        "utilisation_ppm": figures.utilisation_ppm,
        "running_nanos_per_gpu_hour": _nanos_of(figures.running),
        "dedicated_nanos_per_gpu_hour": dedicated_per_hour(figures),
        "source": figures.source,
        "set_by": figures.by,
        "set_at": figures.at,
    }
    if rows.find(ComparisonRow, key) is not None:
        rows.change(ComparisonRow, key, **told)
        return
    model, currency = figures.gpu_model, figures.currency
    rows.make(ComparisonRow, key=key, gpu_model=model, currency=currency, **told)


def _nanos_of(rate: Rate | None) -> int | None:
    return None if rate is None else rate.nanos_per_gpu_hour


PROJECTIONS = (
    Projection(
        name="marketplace.spending",
        project=project_spending,
        tables=(
            SpendingBidRow,
            SpendingVolumeRow,
            SpendingDayRow,
            SpendingReadRow,
            SpendingBudgetRow,
            SpendingGrantRow,
            SpendingCrossingRow,
            ComparisonRow,
        ),
        is_bulk=True,
        on=names_of(
            BidPlaced,
            LeaseScheduled,
            HoldResized,
            HoldReleased,
            UsageCaptured,
            VolumeCreated,
            StorageCharged,
            SpendingBudgetSet,
            SpendingBudgetEnded,
            SpendingDrawn,
            SpendingGrantAsked,
            SpendingGrantDecided,
            SpendingThresholdMet,
            ComparisonSet,
        ),
    ),
)
