"""What the parts of a sum are called: names for ids, words for what has no name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from config.site.pages.finance.kinds import KINDS
from ledger.access import Actor
from ledger.queries.costs import COST_BYS
from marketplace.queries.costs import LEASE_BYS
from marketplace.queries.naming import names_of

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
ASKED = (*COST_BYS, *LEASE_BYS)
"""Names that an address may narrow a sum by."""


def titles(actor: Actor, by: str, keys: Iterable[str]) -> dict[str, str]:
    """Return what each key of one grouping is called."""
    wanted = list(dict.fromkeys(keys))
    found = {key: key or NONE.get(by, "none") for key in wanted}
    if by == "kind":
        return {key: KINDS.get(key, key) for key in wanted}
    return found | names_of(actor, by, wanted)


def only_of(query: Mapping[str, str]) -> dict[str, str]:
    """Return by what an address narrows a sum."""
    return {name: query[name] for name in TITLES if name in query and name in ASKED}


def place_of(by: str, key: str) -> str:
    """Return where a thing has a page of its own; empty: it has none."""
    pages = {"lease": "/leases/{}", "offer": "/offers/{}", "account": "/finance/accounts/{}"}
    return pages[by].format(key) if key and by in pages else ""
