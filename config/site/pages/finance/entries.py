"""Entries of the journal: those that a sum is made of, and one with its lines and its events."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.finance.kinds import ACCOUNT_KINDS, KINDS
from config.site.pages.finance.naming import TITLES, only_of, titles
from config.site.pages.finance.spans import Span, months_offered, need_money, span_of
from config.site.pages.finance.way import way_to
from config.site.parts.paging import part_of
from ledger.access import Actor, visible
from ledger.composing import entries_of_line, entries_on
from ledger.domain.periods import Period
from ledger.domain.whole_numbers import whole_number
from ledger.eventstore import default_store
from ledger.models import JournalEntryRow
from ledger.queries import entries as queries
from ledger.queries.costs import COST_BYS
from ledger.queries.entries import Wanted, moved
from ledger.queries.invoices import invoice, invoice_of
from ledger.queries.money import accounts as all_accounts
from ledger.queries.money import party_names
from marketplace.models.leases import LeaseRow
from marketplace.queries.costs import leases_told

ADDED_UP_MAX = 20_000
"""Of more entries than that the sum is not worked out on the page."""
POSITION_MAX = 2**62
FIRST, LAST = Period(2000, 1), Period(2199, 12)
"""All months that there may be: an invoice has entries of more than its own."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What the list is narrowed to: the condition, the words for it, and the accounts of whom each
    entry is with."""

    wanted: Wanted
    words: Sequence[tuple[str, str]]
    with_accounts: frozenset[UUID]


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List the entries that a cell, a cost or a line of an invoice is made of."""
    actor, now = need_money(request), timezone.now()
    span = span_of(request, now)
    asked = _narrowed(request, actor, span)
    rows = queries.entries(actor, asked.wanted)
    part = part_of(request, rows, "entries")
    accounts = all_accounts(actor).in_bulk()
    shown = [
        {**_shown(row, asked, accounts), "account": accounts.get(row.account_id)}
        for row in part.rows
    ]
    context = {
        "tab": "entries",
        "span": span,
        "months": months_offered(now, span),
        "words": asked.words,
        "asked": [(k, v) for k, v in request.GET.items() if k not in _OWN],
        "part": part,
        "lines": shown,
        "sums": _sums(rows, asked, accounts),
        "all_href": urlencode(span.asked),
        "is_of_invoice": "invoice" in request.GET,
        "is_cost": bool(asked.words),
    }
    return page(request, "pages/entries.html", context)


_OWN = ("since", "period", "entries", "after")


def _narrowed(request: HttpRequest, actor: Actor, span: Span) -> Narrowed:
    """Return what the address asks for; what it names and does not exist matches nothing.

    Raises: InvoiceUnknown, CostByUnknown.
    """
    query = request.GET.dict()
    only = only_of(query)
    words = [(TITLES[name].lower(), titles(actor, name, [key])[key]) for name, key in only.items()]
    with_id, payer_id = (_id(query.get(name, "")) for name in ("with", "payer"))
    names = party_names(each for each in (with_id, payer_id) if each)
    if payer_id:
        words.append(("charged to", names.get(payer_id, str(payer_id))))
    if with_id:
        words.append(("with", names.get(with_id, str(with_id))))
    of, first, last = Q(), span.first, span.last
    if number := query.get("invoice", ""):
        row = invoice(actor, number)
        line = next((each for each in row.lines if each["line_id"] == query.get("line")), None)
        of = entries_of_line(row, line) if line else entries_on(row)
        first, last = FIRST, LAST
        words.append(("on", f"{number}, {line['title']}" if line else number))
    after = _position(query.get("recorded_after", ""))
    if after:
        words.append(("recorded after event", str(after)))
    wanted = Wanted(
        first=first,
        last=last,
        only={name: key for name, key in only.items() if name in COST_BYS},
        with_id=with_id,
        payer_id=payer_id,
        leases=leases_told(only),
        after=after,
        of=of,
    )
    return Narrowed(wanted, words, queries.accounts_of_party(with_id) if with_id else frozenset())


def _id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _position(text: str) -> int:
    try:
        return whole_number(text or "0", least=0, most=POSITION_MAX)
    except ValueError:
        return 0


def _amount(row: JournalEntryRow, asked: Narrowed, mine: Container[UUID]) -> int:
    """Return what an entry means here: what came to be owed, or what it costs, or moves of ours."""
    if asked.with_accounts:
        pairs = zip(row.account_ids, row.nanos, strict=True)
        return sum(nanos for account_id, nanos in pairs if account_id in asked.with_accounts)
    if row.account_id in mine:
        own = moved(row, row.account_id)
        return -own if asked.words else own
    pairs = zip(row.account_ids, row.nanos, strict=True)
    return sum(nanos for account_id, nanos in pairs if account_id in mine)


def _shown(row: JournalEntryRow, asked: Narrowed, mine: Container[UUID]) -> dict[str, Any]:
    kind = KINDS.get(row.kind, row.kind)
    return {"row": row, "kind": kind, "nanos": _amount(row, asked, mine)}


def _sums(rows: Any, asked: Narrowed, mine: Container[UUID]) -> Mapping[str, int] | None:
    """Return what all of the list comes to, by currency; None: there are too many."""
    found: dict[str, int] = {}
    told = list(rows[: ADDED_UP_MAX + 1])
    if len(told) > ADDED_UP_MAX:
        return None
    for row in told:
        found[row.currency] = found.get(row.currency, 0) + _amount(row, asked, mine)
    return found


@require_safe
def one(request: HttpRequest, entry_id: UUID) -> HttpResponse:
    """One entry: its lines, what it is for, and the events that led to it."""
    actor = need_money(request)
    seen = queries.entry(actor, entry_id)
    row = seen.row
    bid_id = None
    if row.lease_id and seen.is_whole:
        leases = visible(actor, LeaseRow).filter(pk=row.lease_id)
        bid_id = leases.values_list("bid_id", flat=True).first()
    number = ""
    if seen.is_whole:
        number = invoice_of(actor, entry_id, position=POSITION_MAX)
    context = {
        "tab": "entries",
        "seen": seen,
        "row": row,
        "kind": KINDS.get(row.kind, row.kind),
        "means": ACCOUNT_KINDS,
        "bid_id": bid_id,
        "number": "" if row.kind == "credit" else number,
        "way": way_to(default_store(), row, bid_id=bid_id) if seen.is_whole else [],
        "sees_all": actor.sees_all,
    }
    return page(request, "pages/entry.html", context)
