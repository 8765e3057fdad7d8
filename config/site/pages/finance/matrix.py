"""Who owes whom: units on one side, whom their money went to on the other, gross and net."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.finance.spans import Span, months_offered, need_money, span_of
from ledger.access import Actor
from ledger.queries.matrix import Cell, between_organisations, owed
from ledger.queries.money import party_names

ROWS_SHOWN, COLUMNS_SHOWN = 100, 12
NETTED_SHOWN = 100
Unit = tuple[UUID, UUID | None]
"""An organisation and its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One cell of a table. href: the entries that it is made of. column: the head over it."""

    gross_nanos: int
    against_nanos: int
    href: str
    own: bool = False
    column: str = ""

    @property
    def nanos(self) -> int:
        """Return what is left."""
        return self.gross_nanos - self.against_nanos


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one unit owes, by column; None: nothing. rest: what is in no column."""

    title: str
    organisation: str
    cells: Sequence[Shown | None]
    rest: Shown | None
    total: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The matrix of one currency. more: units that are not shown."""

    currency: str
    columns: Sequence[str]
    has_rest: bool
    lines: Sequence[Line]
    more: int
    totals: Sequence[Shown]
    rest: Shown | None
    total: Shown


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the matrix of some months, and what is left between organisations."""
    actor, now = need_money(request), timezone.now()
    span = span_of(request, now)
    cells = owed(actor, span.first, span.last)
    ids = {each.tenant_id for each in cells} | {each.unit_id for each in cells}
    names = party_names(each for each in ids | {each.other_id for each in cells} if each)
    left = between_organisations(cells)
    context = {
        "tab": "matrix",
        "span": span,
        "months": months_offered(now, span),
        "tables": [
            _table(actor, span, currency, cells, names)
            for currency in sorted({each.currency for each in cells})
        ],
        "netted": [
            {
                "row": row,
                "debtor": names.get(row.debtor_id, str(row.debtor_id)),
                "creditor": names.get(row.creditor_id, str(row.creditor_id)),
            }
            for row in left[:NETTED_SHOWN]
        ],
        "netted_more": max(0, len(left) - NETTED_SHOWN),
        "sees_all": actor.sees_all,
    }
    return page(request, "pages/matrix.html", context)


def _table(
    actor: Actor, span: Span, currency: str, cells: Sequence[Cell], names: dict[UUID, str]
) -> Table:
    mine = [each for each in cells if each.currency == currency]
    by_other: dict[UUID | None, list[Cell]] = defaultdict(list)
    by_unit: dict[Unit, list[Cell]] = defaultdict(list)
    for each in mine:
        by_other[each.other_id].append(each)
        by_unit[each.tenant_id, each.unit_id].append(each)
    others = sorted(by_other, key=lambda key: (-_nanos(by_other[key]), str(key)))
    shown, hidden = others[:COLUMNS_SHOWN], others[COLUMNS_SHOWN:]
    units = sorted(by_unit, key=lambda key: (-_nanos(by_unit[key]), str(key)))
    lines = [
        _line(actor, span, unit, by_unit[unit], (shown, hidden), names)
        for unit in units[:ROWS_SHOWN]
    ]
    in_rest = [each for each in mine if each.other_id in hidden]
    return Table(
        currency=currency,
        columns=[_head(key, names) for key in shown],
        has_rest=bool(hidden),
        lines=lines,
        more=max(0, len(units) - ROWS_SHOWN),
        totals=[_sum(by_other[key], _href(span, _with(key)), _head(key, names)) for key in shown],
        rest=_sum(in_rest, "") if hidden else None,
        total=_sum(mine, ""),
    )


def _line(
    actor: Actor,
    span: Span,
    unit: Unit,
    cells: Sequence[Cell],
    columns: tuple[Sequence[UUID | None], Sequence[UUID | None]],
    names: dict[UUID, str],
) -> Line:
    tenant_id, unit_id = unit
    organisation = names.get(tenant_id, str(tenant_id))
    asked = _of_unit(actor, unit)
    by_other = {each.other_id: each for each in cells}
    hidden = [by_other[key] for key in columns[1] if key in by_other]
    return Line(
        title=names.get(unit_id, str(unit_id)) if unit_id else organisation,
        organisation=organisation if unit_id else "",
        cells=[
            _sum([by_other[key]], _href(span, {**asked, **_with(key)}), _head(key, names))
            if key in by_other
            else None
            for key in columns[0]
        ],
        rest=_sum(hidden, "") if hidden else None,
        total=_sum(cells, _href(span, asked)),
    )


def _head(other_id: UUID | None, names: dict[UUID, str]) -> str:
    return names.get(other_id, str(other_id)) if other_id else "accounts that nobody opened"


def _of_unit(actor: Actor, unit: Unit) -> dict[str, str]:
    """Return what asks for the entries of a unit: of another organisation those with one's own."""
    tenant_id, unit_id = unit
    if not (actor.sees_all or tenant_id == actor.tenant_id):
        return {"payer": str(tenant_id)}
    return {"tenant": str(tenant_id), "unit": str(unit_id or "")}


def _with(other_id: UUID | None) -> dict[str, str]:
    return {"with": str(other_id)} if other_id else {}


def _href(span: Span, asked: dict[str, str]) -> str:
    return f"/finance/entries?{urlencode({**span.asked, **asked})}"


def _nanos(cells: Sequence[Cell]) -> int:
    return sum(each.nanos for each in cells)


def _sum(cells: Sequence[Cell], href: str, column: str = "") -> Shown:
    return Shown(
        column=column,
        gross_nanos=sum(each.gross_nanos for each in cells),
        against_nanos=sum(each.against_nanos for each in cells),
        href=href,
        own=all(each.is_own for each in cells),
    )
