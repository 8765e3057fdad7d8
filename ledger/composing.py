"""What is to be on the invoice of a month of an account: worked out of the rows of the journal.

An invoice has what counts in its month, and what came to months that the account was invoiced for
before (they were open still, or opened again). So each charge is on exactly one invoice: the first
one of its month or a later one that was made after it. The account's first invoice has its own
month alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, Sum
from django.db.models.functions import TruncMonth

from ledger.domain.billed import BILLED, TITLES, category_of
from ledger.domain.billing_details import DUE_DAYS_DEFAULT
from ledger.domain.ids import AccountId, SubscriberId, TenantId
from ledger.domain.invoice_events import InvoiceKind, PartyDetails, TaxScheme
from ledger.domain.invoices import Draft, DraftLine
from ledger.domain.money import MILLIS_PER_HOUR, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period, read_period
from ledger.domain.storage import GIB_MONTH
from ledger.domain.tax import rule_of
from ledger.eventstore.port import Position
from ledger.models import (
    AccountRow,
    BillingDetailsRow,
    InvoiceRow,
    PartyNameRow,
    PostingRow,
    StorageChargeRow,
    UsageChargeRow,
)

WITH_ROWS = ("usage", "storage")
"""Kinds whose charges have rows of their own that say what for."""
PRICES_APART_MAX = 12
"""Use at so many prices has a line for each; at more it has one, or a market would fill pages."""
THOUSAND = 1_000


def compose(account: AccountRow, period: Period, *, as_of: Position) -> Draft:
    """Return what the account's invoice of a month would say, as of a position.

    The rows of money must have been read up to `as_of`.
    """
    assert account.tenant_id is not None, "an account that pays is open"
    before = list(InvoiceRow.objects.filter(account_id=account.pk).order_by("period"))
    new = _uncovered(period, before, as_of)
    numbers = {row.period: row.number for row in before}
    lines = [
        *_use(account, new, period, numbers),
        *_storage(account, new, period, numbers),
        *_others(account, new, period, numbers),
    ]
    _need_whole(account, new, lines)
    issuer = _details_of(PLATFORM_ID)
    payer = payer_of(account)
    return Draft(
        kind=_kind_of(account, payer),
        account_id=AccountId(account.pk),
        tenant_id=TenantId(account.tenant_id),
        subscriber_id=SubscriberId(account.subscriber_id) if account.subscriber_id else None,
        period=period,
        currency=account.currency,
        issuer=platform_named(),
        payer=payer,
        lines=tuple(lines),
        rule=rule_of(_scheme_of(issuer)),
        due_days=issuer.due_days if issuer else DUE_DAYS_DEFAULT,
        as_of=as_of,
        follows=before[-1].pk if before else None,
    )


def _uncovered(period: Period, before: list[InvoiceRow], as_of: Position) -> Q:
    """Return which rows of an account no invoice has yet."""
    if not before:
        return Q(period=str(period), position__lte=as_of)
    first, last = before[0], before[-1]
    late = Q(period__gte=first.period, period__lte=last.period, position__gt=last.as_of)
    fresh = Q(period__gt=last.period, period__lte=str(period))
    return (late | fresh) & Q(position__lte=as_of)


def _use(
    account: AccountRow, new: Q, period: Period, numbers: dict[str, str]
) -> Iterable[DraftLine]:
    rows = (
        UsageChargeRow.objects.filter(new, account_id=account.pk)
        .annotate(of=TruncMonth("starts_at", tzinfo=UTC))
        .values("sku", "service_class", "provider", "price_nanos", "of")
        .annotate(nanos=Sum("charged_nanos"), millis=Sum("gpu_millis"))
        .order_by("of", "sku", "service_class", "provider", "price_nanos")
    )
    found = list(rows)
    asked = Counter(_terms(row) for row in found)
    few = {terms for terms, prices in asked.items() if 1 < prices <= PRICES_APART_MAX}
    lines: dict[tuple[object, ...], tuple[str, int, int]] = {}
    for row in found:
        apart = _terms(row) in few
        key = (*_terms(row), row["price_nanos"] if apart else None)
        price = Rate(row["price_nanos"], account.currency) if apart else None
        _, millis, nanos = lines.get(key, ("", 0, 0))
        lines[key] = (
            _use_title(row, price),
            millis + int(row["millis"]),
            nanos + int(row["nanos"]),
        )
    for (of, sku, *_), (title, millis, nanos) in lines.items():
        assert isinstance(of, datetime) and isinstance(sku, str)
        yield DraftLine(
            category="use",
            sku=sku,
            quantity=thousandths(millis, MILLIS_PER_HOUR),
            unit="GPU-hours",
            nanos=nanos,
            **_month(str(Period.of(of)), period, numbers, title),
        )


def _terms(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what use is told apart by on an invoice, whatever its price."""
    return (row["of"], row["sku"], row["service_class"], row["provider"])


def _use_title(row: Mapping[str, Any], price: Rate | None = None) -> str:
    """Return what use is called; price: where there are lines of several."""
    title = ", ".join(filter(None, (row["sku"] or TITLES["use"], row["service_class"])))
    title = f"{title} (rented from {row['provider']})" if row["provider"] else title
    return title if price is None else f"{title}, at {price}"


def _storage(
    account: AccountRow, new: Q, period: Period, numbers: dict[str, str]
) -> Iterable[DraftLine]:
    rows = (
        StorageChargeRow.objects.filter(new, account_id=account.pk)
        .annotate(of=TruncMonth("starts_at", tzinfo=UTC))
        .values("of")
        .annotate(nanos=Sum("charged_nanos"), kept=Sum("byte_seconds"))
        .order_by("of")
    )
    for row in rows:
        yield DraftLine(
            category="storage",
            sku="VOLUME",
            quantity=thousandths(int(row["kept"]), GIB_MONTH),
            unit="GiB-months",
            nanos=int(row["nanos"]),
            **_month(str(Period.of(row["of"])), period, numbers, TITLES["storage"]),
        )


def _others(
    account: AccountRow, new: Q, period: Period, numbers: dict[str, str]
) -> Iterable[DraftLine]:
    kinds = [kind for kind in BILLED if kind not in WITH_ROWS]
    rows = (
        PostingRow.objects.filter(new, account_id=account.pk, kind__in=kinds)
        .values("kind", "period")
        .annotate(nanos=Sum("nanos"))
        .order_by("kind", "period")
    )
    for row in rows:
        category = category_of(row["kind"])
        assert category is not None, "only kinds that are billed were asked for"
        yield DraftLine(
            category=category,
            sku=row["kind"].upper(),
            nanos=-int(row["nanos"]),
            **_month(row["period"], period, numbers, TITLES[category]),
        )


def _month(of: str, period: Period, numbers: dict[str, str], title: str) -> dict[str, Any]:
    """Return title, month and corrected invoice of a line; another month's is named in it."""
    if of == str(period):
        return {"title": title, "period": of, "corrects": ""}
    return {"title": f"{title}, for {of}", "period": of, "corrects": numbers.get(of, "")}


def _need_whole(account: AccountRow, new: Q, lines: list[DraftLine]) -> None:
    """Stop where the lines are not what the journal has: that is a mistake of ours."""
    posted = PostingRow.objects.filter(new, account_id=account.pk, kind__in=BILLED)
    journal = -int(posted.aggregate(sum=Sum("nanos"))["sum"] or 0)
    said = sum(line.nanos for line in lines)
    assert said == journal, f"{account.pk}: lines are {said}, the journal has {journal}"


def entries_on(invoice: InvoiceRow) -> Q:
    """Return the condition of entries that are on an invoice; what it added itself is left out."""
    before = InvoiceRow.objects.filter(account_id=invoice.account_id, period__lt=invoice.period)
    new = _uncovered(
        read_period(invoice.period), list(before.order_by("period")), Position(invoice.as_of)
    )
    return new & Q(account_id=invoice.account_id, kind__in=BILLED)


def entries_of_line(invoice: InvoiceRow, line: dict[str, Any]) -> Q:
    """Return the condition of the entries that one line of an invoice is made of."""
    on = entries_on(invoice)
    of = read_period(line["period"]).window
    within = {"starts_at__gte": of.starts_at, "starts_at__lt": of.ends_at}
    mine = {"account_id": invoice.account_id}
    match line["category"]:
        case "use":
            rows = UsageChargeRow.objects.filter(**mine, **within, sku=line["sku"])
            told = ("sku", "service_class", "provider", "price_nanos", "currency")
            title = line["title"].removesuffix(f", for {line['period']}")
            same = Q(pk__in=())
            for each in rows.values(*told).distinct().order_by():
                price = Rate(each["price_nanos"], each["currency"])
                if title in (_use_title(each), _use_title(each, price)):
                    same |= Q(**each)
            return on & Q(kind="usage", entry_id__in=rows.filter(same).values("entry_id"))
        case "storage":
            kept = StorageChargeRow.objects.filter(**mine, **within)
            return on & Q(kind="storage", entry_id__in=kept.values("entry_id"))
        case _:
            return on & Q(kind=line["sku"].lower(), period=line["period"])


def thousandths(amount: int, unit: int) -> str:
    """Write a quantity with three places, rounded half up."""
    whole = (2 * amount * THOUSAND + unit) // (2 * unit)
    return f"{whole // THOUSAND}.{whole % THOUSAND:03d}"


def _kind_of(account: AccountRow, payer: PartyDetails) -> InvoiceKind:
    """Return what the document is: a cost centre without a country is of the same organisation."""
    if account.kind == "prepaid":
        return "receipt"
    return "invoice" if payer.country else "internal"


def payer_of(account: AccountRow) -> PartyDetails:
    """Return whose account it is: as the unit is named, else as its organisation is."""
    for party_id in (account.subscriber_id, account.tenant_id):
        found = _printed(_details_of(party_id)) if party_id else None
        if found is not None:
            return found
    names = [_name_of(each, "") for each in (account.tenant_id, account.subscriber_id) if each]
    said = [name for name in names if name]
    return PartyDetails(name=said[0] if said else account.title, address=tuple(said[1:]))


def platform_named() -> PartyDetails:
    """Return how the platform is named on what it issues."""
    return party_named(PLATFORM_ID) or PartyDetails(name=_name_of(PLATFORM_ID, "Offpeak"))


def party_named(party_id: UUID) -> PartyDetails | None:
    """Return a party's billing details; None: it has none on record."""
    return _printed(_details_of(party_id))


def platform_scheme() -> TaxScheme:
    """Return which taxes the platform's invoices have."""
    return _scheme_of(_details_of(PLATFORM_ID))


def _details_of(party_id: UUID) -> BillingDetailsRow | None:
    return BillingDetailsRow.objects.filter(pk=party_id).first()


def _printed(row: BillingDetailsRow | None) -> PartyDetails | None:
    if row is None:
        return None
    said = row.details
    return PartyDetails(**{**said, "address": tuple(said["address"])})


def _scheme_of(row: BillingDetailsRow | None) -> TaxScheme:
    return "eu-vat" if row is not None and row.scheme == "eu-vat" else "none"


def _name_of(party_id: UUID, otherwise: str) -> str:
    found = PartyNameRow.objects.filter(pk=party_id).first()
    return found.title if found else otherwise
