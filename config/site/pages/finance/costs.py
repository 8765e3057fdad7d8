"""Costs by anything: a table of one or two groupings, by day above it, and the same as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.finance.naming import TITLES, only_of, place_of, titles
from config.site.pages.finance.spans import Span, months_offered, need_money, span_of
from config.site.parts.days import DayBars, day_bars
from config.site.parts.figures import gpu_hours_text
from ledger.access import Actor
from ledger.domain.money import decimal_of
from ledger.exports.cells import harmless
from marketplace.queries.costs import Cost, cost_by

ROWS_SHOWN = 200
DAYS_SHOWN = 62
BY, THEN = "unit", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table. is_part: of the row above it. href: the entries it is made of.

    narrower: the same page with nothing else than this.
    """

    title: str
    cost: Cost
    is_part: bool
    href: str
    narrower: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The costs of one currency. more: rows that are not shown."""

    currency: str
    total: Cost
    days: DayBars | None
    rows: Sequence[Row]
    more: int
    most: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for. then: the second grouping; empty: none."""

    span: Span
    by: str
    then: str
    only: Mapping[str, str]

    @property
    def groupings(self) -> list[str]:
        """Return one or two groupings."""
        return [self.by, self.then] if self.then else [self.by]

    def query(self, **other: str) -> str:
        """Return the address's query, with some of it otherwise; empty values are left out."""
        named = {**self.span.asked, "by": self.by, "then": self.then, **self.only, **other}
        return urlencode({k: v for k, v in named.items() if v or k not in ("then", "by")})


def _asked(request: HttpRequest, actor: Actor) -> Asked:
    offered = _offered(actor)
    by, then = request.GET.get("by", BY), request.GET.get("then", THEN)
    by = by if by in offered else BY
    then = then if then in offered and then != by else ""
    only = only_of(request.GET.dict())
    return Asked(span_of(request, timezone.now()), by, then, only)


def _offered(actor: Actor) -> list[str]:
    return [name for name in TITLES if name != "tenant" or actor.sees_all]


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show what some months cost, by what was chosen."""
    actor = need_money(request)
    asked = _asked(request, actor)
    span = asked.span
    found = cost_by(actor, span.first, span.last, by=asked.groupings, only=asked.only)
    by_day = _days(actor, asked)
    context = {
        "tab": "costs",
        "span": span,
        "months": months_offered(timezone.now(), span),
        "asked": asked,
        "title": TITLES[asked.by],
        "then_title": TITLES.get(asked.then, ""),
        "bys": [(name, TITLES[name]) for name in _offered(actor)],
        "only": _only(actor, asked),
        "tables": [
            _table(actor, asked, currency, found, by_day)
            for currency in sorted({each.currency for each in found})
        ],
        "file": f"/finance/costs/file?{asked.query()}",
        "sees_all": actor.sees_all,
    }
    return page(request, "pages/costs.html", context)


@require_safe
def file(request: HttpRequest) -> HttpResponse:
    """Send the table as CSV, with every nano-unit, and ids beside names."""
    actor = need_money(request)
    asked = _asked(request, actor)
    name = f"offpeak-costs-{asked.span.first}-{asked.span.last}-by-{'-'.join(asked.groupings)}.csv"
    return HttpResponse(
        "".join(_written(actor, asked)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


class _Line:
    """Takes what the CSV writer writes and gives it back."""

    def write(self, text: str) -> str:
        return text


def _written(actor: Actor, asked: Asked) -> Iterator[str]:
    writer, span = csv.writer(_Line()), asked.span
    names = asked.groupings
    heads = [head for name in names for head in (f"{name}_key", name)]
    yield writer.writerow(
        ["first_month", "last_month", *heads, "currency", "cost", "gpu_hours", "entries"]
    )
    found = cost_by(actor, span.first, span.last, by=names, only=asked.only)
    named = [titles(actor, name, (each.keys[i] for each in found)) for i, name in enumerate(names)]
    for each in found:
        keys = [text for i, key in enumerate(each.keys) for text in (key, named[i][key])]
        cells = [str(span.first), str(span.last), *keys, each.currency]
        cells += [decimal_of(each.nanos), gpu_hours_text(each.gpu_millis).replace(",", "")]
        yield writer.writerow(harmless([*cells, str(each.entries)]))


def _only(actor: Actor, asked: Asked) -> list[tuple[str, str, str]]:
    """Return what the page is narrowed to: what, its name, and the address without it."""
    shown = []
    for name, key in asked.only.items():
        rest = {each: it for each, it in asked.only.items() if each != name}
        without = Asked(asked.span, asked.by, asked.then, rest)
        shown.append((TITLES[name].lower(), titles(actor, name, [key])[key], without.query()))
    return shown


def _days(actor: Actor, asked: Asked) -> list[Cost]:
    span = asked.span
    if (span.last.window.ends_at - span.first.window.starts_at).days > DAYS_SHOWN:
        return []
    return cost_by(actor, span.first, span.last, by=["day"], only=asked.only)


def _table(
    actor: Actor, asked: Asked, currency: str, found: Sequence[Cost], by_day: Sequence[Cost]
) -> Table:
    mine = [each for each in found if each.currency == currency]
    heads = _heads(mine)
    window = asked.span.first.window.starts_at.date(), asked.span.last.window.ends_at.date()
    days = {
        date.fromisoformat(each.keys[0]): each.nanos for each in by_day if each.currency == currency
    }
    rows = list(_rows(actor, asked, mine, heads))
    return Table(
        currency=currency,
        total=_sum((), heads.values(), currency),
        days=day_bars(days, *window, currency) if days else None,
        rows=rows[:ROWS_SHOWN],
        more=max(0, len(rows) - ROWS_SHOWN),
        most=max((each.nanos for each in heads.values()), default=0),
    )


def _heads(found: Sequence[Cost]) -> dict[str, Cost]:
    """Return the sums of the first grouping, in their order."""
    parts: dict[str, list[Cost]] = {}
    for each in found:
        parts.setdefault(each.keys[0], []).append(each)
    return {key: _sum((key,), some, some[0].currency) for key, some in parts.items()}


def _sum(keys: tuple[str, ...], some: Any, currency: str) -> Cost:
    each = list(some)
    return Cost(
        keys=keys,
        currency=currency,
        nanos=sum(one.nanos for one in each),
        gpu_millis=sum(one.gpu_millis for one in each),
        entries=sum(one.entries for one in each),
    )


def _rows(
    actor: Actor, asked: Asked, mine: Sequence[Cost], heads: Mapping[str, Cost]
) -> Iterator[Row]:
    named = titles(actor, asked.by, heads)
    under = titles(actor, asked.then, (each.keys[1] for each in mine)) if asked.then else {}
    parts: dict[str, list[Cost]] = {}
    for each in mine:
        parts.setdefault(each.keys[0], []).append(each)
    for key, head in heads.items():
        chosen = {asked.by: key}
        yield _row(asked, head, named[key], chosen, is_part=False)
        for part in parts[key] if asked.then else ():
            also = {**chosen, asked.then: part.keys[1]}
            yield _row(asked, part, under[part.keys[1]], also, is_part=True)


def _row(asked: Asked, cost: Cost, title: str, chosen: Mapping[str, str], *, is_part: bool) -> Row:
    by = list(chosen)[-1]
    left = next(
        name for name in (asked.then, "lease", "day", "kind") if name and name not in chosen
    )
    entries = {**asked.span.asked, **asked.only, **chosen}
    return Row(
        title=title,
        cost=cost,
        is_part=is_part,
        href=f"/finance/entries?{urlencode(entries)}",
        narrower=f"/finance/costs?{asked.query(**chosen, by=left, then='')}",
        place=place_of(by, chosen[by]),
    )
