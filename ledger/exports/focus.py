"""Charges as rows of FOCUS: the FinOps Open Cost and Usage Specification.

Costs are written to the nano-unit, quantities to 18 places: a charge is rated in whole nano-units,
so unit price times quantity gives the cost back to within the nano-unit that the specification's
rules allow. What is not known is left empty, which means null.

Prepaid accounts are billed when they pay in (Purchase) and bear the cost when they use
(EffectiveCost); others are billed for use. Compensation is a Credit.

A row has two parts: what it shares with the other charges of its payer on its terms, and its own.
Whoever writes many rows makes the first part once (`focus_csv`, `focus_parquet`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT
from ledger.domain.periods import Period
from ledger.domain.storage import GIB_MONTH
from ledger.exports import split
from ledger.exports.charges import Charge, Payer, Storage, Terms, Use
from ledger.exports.kinds import Once

ISSUER = "Offpeak"
QUANTITY_PLACES = 18
ZERO = "0.000000000"
NOT_HOSTED = "Not Applicable"
"""HostProviderName of what no machine stands behind, such as a payment."""
MOMENTS_KNOWN = 4_096
"""How many moments and quantities are held as texts: most windows are whole hours."""

Row = dict[str, str]


def row_of(charge: Charge, *, period: Period) -> Row:
    """Return one charge as a row of any version; columns that are null are left out."""
    row = shared_part(charge, period=period) | own_part(charge)
    return {column: value for column, value in row.items() if value}


def shared_key(charge: Charge, since: datetime) -> Hashable:
    """Return what tells apart the charges that share a part: the same key, the same part.

    since: when the month of the export begins.
    """
    use = charge.use
    if use is not None:
        return charge.payer, use.terms, use.starts_at < since
    return charge.payer, charge.once, _correction(charge, since)


def shared_part(charge: Charge, *, period: Period) -> Row:
    """Return the columns that all charges with the same `shared_key` have alike."""
    row = _who(charge.payer, period) | {"ChargeClass": _correction(charge, period.window.starts_at)}
    if charge.use is not None:
        return row | _use_shared(charge.payer, charge.use.terms)
    if charge.storage is not None:
        return row | _STORAGE
    assert charge.once is not None
    return row | _once_shared(charge.once)


def own_part(charge: Charge) -> Row:
    """Return the columns of one charge alone; always the same ones for the same `shared_key`."""
    row = {
        "InvoiceId": charge.document,
        "x_JournalEntryId": charge.entry_id,
        "x_LeaseId": charge.lease_id,
    }
    if charge.use is not None:
        return row | _use_own(charge, charge.use)
    if charge.storage is not None:
        return row | _storage_own(charge, charge.storage)
    assert charge.once is not None
    return row | _once_own(charge, charge.once)


def _correction(charge: Charge, since: datetime) -> str:
    """Tell if a charge is for a month that was closed when it was recorded."""
    of = charge.use or charge.storage
    starts_at = charge.corrects_from if of is None else of.starts_at
    return "Correction" if starts_at is not None and starts_at < since else ""


def _who(payer: Payer, period: Period) -> Row:
    if payer.unit_id is None:
        sub = (f"offpeak:account/{payer.account_id}", payer.account_title, "Account")
    else:
        sub = (f"offpeak:unit/{payer.unit_id}", payer.unit_title, "Business unit")
    month = period.window
    return {
        "BillingAccountId": f"offpeak:tenant/{payer.tenant_id}",
        "BillingAccountName": payer.tenant_title,
        "BillingAccountType": "Organization",
        "BillingCurrency": payer.currency,
        "BillingPeriodStart": _moment(month.starts_at),
        "BillingPeriodEnd": _moment(month.ends_at),
        "InvoiceIssuerName": ISSUER,
        "PricingCurrency": payer.currency,
        "ProviderName": ISSUER,
        "PublisherName": ISSUER,
        "ServiceProviderName": ISSUER,
        "HostProviderName": ISSUER,
        "SubAccountId": sub[0],
        "SubAccountName": sub[1],
        "SubAccountType": sub[2],
    }


# --- use -----------------------------------------------------------------------------------


def _use_shared(payer: Payer, terms: Terms) -> Row:
    price, list_price = amount(terms.price_nanos), amount(terms.list_price_nanos)
    sku, pricing = _sku(terms), terms.service_class or "market"
    shared = {
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ConsumedUnit": "GPU-Hours",
        "ContractedUnitPrice": price,
        "HostProviderName": terms.provider or ISSUER,
        "ListUnitPrice": list_price,
        "PricingCategory": "Standard" if terms.provider else "Dynamic",
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": list_price,
        "PricingUnit": "GPU-Hours",
        "PublisherName": terms.provider or ISSUER,
        "RegionId": terms.region,
        "RegionName": terms.region,
        "ResourceType": "Cloud GPU lease" if terms.provider else "GPU lease",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU lease",
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": sku,
        "SkuMeter": "GPU time",
        "SkuPriceDetails": _json({"x_ServiceClass": pricing}),
        "SkuPriceId": f"{sku}:{pricing}",
        "Tags": _json({"cost_center": terms.cost_centre}),
        "x_CostCenter": terms.cost_centre,
        "x_ServiceClass": terms.service_class,
    }
    if terms.shares:
        shared |= split.shared_part(terms.shares, tags=shared["Tags"])
    return shared | ({"BilledCost": ZERO} if payer.prepaid else {})


def _use_own(charge: Charge, use: Use) -> Row:
    cost, quantity, lease = amount(charge.nanos), gpu_hours(use.gpu_millis), charge.lease_id
    list_cost = use.terms.list_price_nanos * use.gpu_millis // MILLIS_PER_HOUR
    own = {
        "ChargeDescription": (
            f"{_sku(use.terms)}, lease {lease}, {quantity_text(use.gpu_millis)} GPU-hours"
        ),
        "ChargePeriodStart": _moment(use.starts_at),
        "ChargePeriodEnd": _moment_up(use.ends_at),
        "ConsumedQuantity": quantity,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": amount(list_cost),
        "PricingCurrencyEffectiveCost": cost,
        "PricingQuantity": quantity,
        "ResourceId": f"offpeak:lease/{lease}",
        "ResourceName": f"lease {lease}",
        "x_GpuMilliseconds": str(use.gpu_millis),
        "x_EnergyMillijoules": "" if use.energy_mj is None else str(use.energy_mj),
    }
    if not charge.payer.prepaid:
        own["BilledCost"] = cost
    if use.terms.shares:
        split.allocate(own, use.terms.shares)
    return own


def _sku(terms: Terms) -> str:
    return terms.sku or "GPU"


# --- storage -------------------------------------------------------------------------------

_STORAGE: Row = {
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "ConsumedUnit": "GiB-Months",
    "PricingCategory": "Standard",
    "PricingUnit": "GiB-Months",
    "ResourceType": "Volume",
    "ServiceCategory": "Storage",
    "ServiceName": "Volume storage",
    "ServiceSubcategory": "File Storage",
    "SkuId": "VOLUME",
    "SkuMeter": "Stored files",
    "SkuPriceId": "VOLUME:GiB-Month",
}


def _storage_own(charge: Charge, kept: Storage) -> Row:
    cost, price = amount(charge.nanos), amount(kept.price_nanos)
    quantity = gib_months(kept.byte_seconds)
    return {
        "BilledCost": ZERO if charge.payer.prepaid else cost,
        "ChargeDescription": f"{kept.title}: {quantity[:8]} GiB-months",
        "ChargePeriodStart": _moment(kept.starts_at),
        "ChargePeriodEnd": _moment_up(kept.ends_at),
        "ConsumedQuantity": quantity,
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": price,
        "PricingQuantity": quantity,
        "ResourceId": f"offpeak:volume/{kept.volume_id}",
        "ResourceName": kept.title,
        "Tags": _json({"cost_center": kept.cost_centre}),
        "x_CostCenter": kept.cost_centre,
    }


# --- what happens once ---------------------------------------------------------------------


def _once_shared(once: Once) -> Row:
    shared = {
        "ChargeCategory": once.category,
        "ChargeFrequency": "One-Time",
        "HostProviderName": NOT_HOSTED,
        "ServiceCategory": "Other",
        "ServiceName": "Offpeak billing",
        "ServiceSubcategory": "Other (Other)",
        "Tags": _json({}),
    }
    if once.category != "Purchase":
        return shared
    return shared | {
        "ContractedUnitPrice": "1",
        "ListUnitPrice": "1",
        "PricingCategory": "Standard",
        "PricingCurrencyContractedUnitPrice": "1",
        "PricingCurrencyListUnitPrice": "1",
        "PricingUnit": "Credits",
        "SkuId": "FUNDS",
        "SkuMeter": "Prepaid funds",
        "SkuPriceId": "FUNDS:1",
    }


def _once_own(charge: Charge, once: Once) -> Row:
    """Return what is told of a charge that happens once: its period is the day."""
    assert charge.at is not None
    day = charge.at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moved, cost = amount(charge.nanos), amount(charge.cost_nanos)
    is_billed = once.is_payment or not charge.payer.prepaid
    own = {
        "BilledCost": moved if is_billed else ZERO,
        "ChargeDescription": once.words.format(reference=charge.reference, lease=charge.lease_id),
        "ChargePeriodStart": _moment(day),
        "ChargePeriodEnd": _moment(day + timedelta(days=1)),
        "ContractedCost": moved,
        "EffectiveCost": cost,
        "ListCost": moved,
        "PricingCurrencyEffectiveCost": cost,
    }
    return own | ({"PricingQuantity": moved} if once.category == "Purchase" else {})


# --- figures -------------------------------------------------------------------------------


def amount(nanos: int) -> str:
    """Write nano-units as a decimal number with all nine places."""
    whole, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    return f"{'-' if nanos < 0 else ''}{whole}.{rest:09d}"


@lru_cache(MOMENTS_KNOWN)
def gpu_hours(gpu_millis: int) -> str:
    """Write GPU-milliseconds as GPU-hours, rounded half up at the last of 18 places."""
    scale = 10**QUANTITY_PLACES
    scaled = (2 * gpu_millis * scale + MILLIS_PER_HOUR) // (2 * MILLIS_PER_HOUR)
    return f"{scaled // scale}.{scaled % scale:0{QUANTITY_PLACES}d}"


def gib_months(byte_seconds: int) -> str:
    """Write byte-seconds as GiB-months, rounded half up at the last of 18 places."""
    scale = 10**QUANTITY_PLACES
    scaled = (2 * byte_seconds * scale + GIB_MONTH) // (2 * GIB_MONTH)
    return f"{scaled // scale}.{scaled % scale:0{QUANTITY_PLACES}d}"


@lru_cache(MOMENTS_KNOWN)
def quantity_text(gpu_millis: int) -> str:
    """Write GPU-milliseconds as GPU-hours that a person reads."""
    thousandths = (gpu_millis + MILLIS_PER_HOUR // 2_000) * 1_000 // MILLIS_PER_HOUR
    return f"{thousandths // 1_000}.{thousandths % 1_000:03d}"


@lru_cache(MOMENTS_KNOWN)
def _moment(moment: datetime) -> str:
    """Write a moment in UTC to the second that it is in."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(MOMENTS_KNOWN)
def _moment_up(moment: datetime) -> str:
    """Write a moment in UTC to the second by which it is over."""
    return _moment(moment + timedelta(seconds=1) if moment.microsecond else moment)


def _json(value: dict[str, str]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
