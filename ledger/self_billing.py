"""Issuing owners' invoices for them: one for each settlement, once its payout was requested.

What came to an owner's earnings between two payouts is the second one's: rows of earnings carry
that round, and no longer change once the payout is requested. So each earning is on one invoice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import structlog
from django.db.models import Exists, OuterRef, QuerySet, Sum

from ledger.commands.self_billing import issue_self_billed
from ledger.composing import (
    party_named,
    platform_named,
    platform_scheme,
    thousandths,
)
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.invoice_events import LineCategory, PartyDetails
from ledger.domain.invoices import DraftLine
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Refusal
from ledger.domain.self_billing import (
    NOT_SUPPLIED,
    BillDraft,
    NothingToSelfBill,
    SelfBilledBefore,
)
from ledger.domain.statements import title_of
from ledger.eventstore.port import EventStore, Meta
from ledger.models import EarningRow, PaperRow, PayoutRow, SelfBillingRow, TenantRow

BILLED_MAX = 100
CATEGORIES: dict[str, LineCategory] = {
    "usage": "use",
    "storage": "storage",
    "compensation": "compensation",
    "sla-credit": "credit",
    "use-credit": "credit",
}
LOOP = Meta(actor="loop:papers")

log = structlog.get_logger()


def to_self_bill() -> QuerySet[PayoutRow]:
    """Return the payouts that were requested since their owners agreed, and have no invoice."""
    agreed = SelfBillingRow.objects.filter(
        tenant_id=OuterRef("tenant_id"), ended_at=None, agreed_at__lte=OuterRef("requested_at")
    )
    billed = PaperRow.objects.filter(payout_id=OuterRef("pk"))
    supplied = EarningRow.objects.filter(
        account_id=OuterRef("account_id"), round=OuterRef("round")
    ).exclude(kind__in=NOT_SUPPLIED)
    return PayoutRow.objects.filter(Exists(agreed), Exists(supplied), ~Exists(billed)).order_by(
        "requested_at", "payout_id"
    )


def bill_settlements(store: EventStore, *, now: datetime) -> int:
    """Issue the invoices of owners who agreed, one for each settlement since.

    One that is refused is in nobody else's way. Returns: how many.
    """
    done = 0
    for row in list(to_self_bill()[:BILLED_MAX]):
        draft = compose_bill(row)
        try:
            by = LOOP.step(f"self-billed:{row.pk}")
            issue_self_billed(store, draft, by=by, now=now)
        except (SelfBilledBefore, NothingToSelfBill):
            continue
        except Refusal as refusal:
            log.warning("self-billed.not-issued", payout=str(row.pk), why=refusal.code)
            continue
        done += 1
    return done


def compose_bill(row: PayoutRow) -> BillDraft:
    """Return what an owner's invoice for a settlement is to say."""
    owner = TenantRow.objects.filter(pk=row.tenant_id).first()
    issuer = party_named(row.tenant_id) or PartyDetails(name=owner.title if owner else "")
    earned = EarningRow.objects.filter(account_id=row.account_id, round=row.round)
    return BillDraft(
        tenant_id=TenantId(row.tenant_id),
        slug=owner.slug if owner else str(row.tenant_id)[:8],
        account_id=AccountId(row.account_id),
        payout_id=row.payout_id,
        settlement=row.period,
        currency=row.currency,
        issuer=issuer,
        payer=platform_named(),
        lines=tuple(_lines(earned.exclude(kind__in=NOT_SUPPLIED))),
        scheme=platform_scheme(),
    )


def _lines(earned: QuerySet[EarningRow]) -> Iterator[DraftLine]:
    """Yield what consumers paid by month and GPU, the fee of it, and all else by kind."""
    sums = earned.values("period", "kind", "sku").annotate(
        millis=Sum("gpu_millis"), gross=Sum("gross_nanos"), fee=Sum("fee_nanos")
    )
    rows = list(sums.order_by("period", "kind", "sku"))
    for period in sorted({row["period"] for row in rows}):
        mine = [row for row in rows if row["period"] == period]
        yield from _supplied(period, [row for row in mine if row["kind"] == "usage"])
        others: dict[str, int] = {}
        for row in mine:
            if row["kind"] != "usage":
                others[row["kind"]] = others.get(row["kind"], 0) + int(row["gross"] - row["fee"])
        for kind, nanos in others.items():
            yield DraftLine(
                category=CATEGORIES.get(kind, "adjustment"),
                sku=kind.upper(),
                title=title_of(kind),
                period=period,
                nanos=nanos,
            )


def _supplied(period: str, rows: Iterable[dict[str, object]]) -> Iterator[DraftLine]:
    fee = 0
    for row in rows:
        fee += int(str(row["fee"]))
        yield DraftLine(
            category="use",
            sku=str(row["sku"]),
            title=", ".join(filter(None, (title_of("usage"), str(row["sku"])))),
            quantity=thousandths(int(str(row["millis"])), MILLIS_PER_HOUR),
            unit="GPU-hours",
            period=period,
            nanos=int(str(row["gross"])),
        )
    if fee:
        yield DraftLine(
            category="fee", sku="FEE", title="Fee of the platform", period=period, nanos=-fee
        )
