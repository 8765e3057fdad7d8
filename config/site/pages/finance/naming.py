"""What the parts of a sum are called: names for ids, words for what has no name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from config.site.pages.finance.kinds import KINDS
from ledger.access import Actor
from ledger.queries import people
from ledger.queries.costs import COST_BYS, paying_accounts
from ledger.queries.money import party_names
from marketplace.queries.costs import LEASE_BYS

TITLES: Mapping[str, str] = {
    "tenant": "Organisation",
    "unit": "Unit",
    "account": "Account",
    "cost-centre": "Cost centre",
    "project": "Project",
    "person": "Person",
    "work": "Kind of work",
    "gpu": "GPU",
    "offer": "Offer",
    "lease": "Lease",
    "kind": "Kind of entry",
    "sku": "SKU",
    "class": "Class of service",
    "region": "Region",
    "provider": "Cloud",
    "month": "Month",
    "day": "Day",
}
"""By what costs are told apart, in the order of the form."""
NONE: Mapping[str, str] = {
    "unit": "no unit",
    "cost-centre": "no cost centre",
    "project": "no project",
    "person": "no person",
    "work": "no lease",
    "gpu": "no lease",
    "offer": "no offer",
    "lease": "no lease",
    "sku": "no SKU",
    "class": "no class",
    "region": "no region",
    "provider": "no cloud",
}
SHORT = 8
ASKED = (*COST_BYS, *LEASE_BYS)
"""Names that an address may narrow a sum by."""


def titles(actor: Actor, by: str, keys: Iterable[str]) -> dict[str, str]:
    """Return what each key of one grouping is called."""
    wanted = list(dict.fromkeys(keys))
    found = {key: key or NONE.get(by, "none") for key in wanted}
    if by == "kind":
        return {key: KINDS.get(key, key) for key in wanted}
    ids = {key: UUID(key) for key in wanted if _is_id(key)}
    match by:
        case "tenant" | "unit":
            named = party_names(ids.values())
        case "person":
            named = {pk: person.title for pk, person in people(ids.values()).items()}
        case "account":
            accounts = paying_accounts(actor).filter(pk__in=list(ids.values()))
            named = dict(accounts.values_list("account_id", "title"))
        case "lease" | "offer":
            named = {pk: key[:SHORT] for key, pk in ids.items()}
        case _:
            named = {}
    return found | {key: named[pk] for key, pk in ids.items() if pk in named}


def _is_id(key: str) -> bool:
    try:
        UUID(key)
    except ValueError:
        return False
    return True


def only_of(query: Mapping[str, str]) -> dict[str, str]:
    """Return by what an address narrows a sum."""
    return {name: query[name] for name in TITLES if name in query and name in ASKED}


def place_of(by: str, key: str) -> str:
    """Return where a thing has a page of its own; empty: it has none."""
    pages = {"lease": "/leases/{}", "offer": "/offers/{}", "account": "/finance/accounts/{}"}
    return pages[by].format(key) if key and by in pages else ""
