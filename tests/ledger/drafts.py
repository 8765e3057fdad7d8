"""Invoices before they are issued: what rules of invoices are tried on."""

from __future__ import annotations

from uuid import uuid4

from ledger.domain.ids import AccountId, SubscriberId, TenantId
from ledger.domain.invoice_events import PartyDetails
from ledger.domain.invoices import Draft, DraftLine
from ledger.domain.periods import Period
from ledger.domain.tax import NoTax

TENANT = TenantId(uuid4())
NOVEMBER = Period(2026, 11)
ISSUED_BY = PartyDetails(name="Offpeak GmbH", country="DE", vat_id="DE123456789")
PAYER = PartyDetails(name="Studio", country="FR", vat_id="FR12345678901")


def line(nanos: int, sku: str = "H100-80G") -> DraftLine:
    return DraftLine(category="use", sku=sku, title=sku, period=str(NOVEMBER), nanos=nanos)


def draft(*nanos: int, account: AccountId | None = None) -> Draft:
    return Draft(
        kind="invoice",
        account_id=account or AccountId(uuid4()),
        tenant_id=TENANT,
        subscriber_id=SubscriberId(TENANT),
        period=NOVEMBER,
        currency="EUR",
        issuer=ISSUED_BY,
        payer=PAYER,
        lines=tuple(map(line, nanos)),
        rule=NoTax(),
        due_days=30,
        as_of=7,
        follows=None,
    )
