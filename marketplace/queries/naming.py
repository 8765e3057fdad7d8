"""Names for the ids that parts of a sum go by."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ledger.access import Actor
from ledger.queries import people
from ledger.queries.costs import paying_accounts
from ledger.queries.money import party_names

SHORT = 8


def names_of(actor: Actor, by: str, keys: Iterable[str]) -> dict[str, str]:
    """Return names by key, of those keys of one grouping that are ids and have a name."""
    ids = {pk: key for key in keys if (pk := _id_of(key)) is not None}
    named: dict[UUID, str]
    match by:
        case "tenant" | "unit":
            named = party_names(ids)
        case "person":
            named = {pk: person.title for pk, person in people(ids).items()}
        case "account":
            accounts = paying_accounts(actor).filter(pk__in=list(ids))
            named = dict(accounts.values_list("account_id", "title"))
        case "lease" | "offer":
            named = {pk: key[:SHORT] for pk, key in ids.items()}
        case _:
            named = {}
    return {key: named[pk] for pk, key in ids.items() if pk in named}


def _id_of(key: str) -> UUID | None:
    try:
        return UUID(key)
    except ValueError:
        return None
