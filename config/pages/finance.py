"""Money: accounts, what each cost centre spent, who owes whom, statements, and exports."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.pages.answers import page
from ledger import exports
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import AccountId
from ledger.domain.periods import Period, PeriodUnreadable, read_period
from ledger.following import read_up_to
from ledger.queries import money

MONEY = "ledger.money"
LINES_MAX = 200
PERIODS_SHOWN = 6
KINDS = {
    "usage": "Use of GPUs",
    "funds": "Added",
    "compensation": "Paid for reclaims",
    "cost": "Rented capacity",
    "correction": "Corrections",
}


def _period(request: HttpRequest, now: datetime) -> Period:
    try:
        return read_period(request.GET.get("period", ""))
    except PeriodUnreadable:
        return Period.of(now)


def _last_periods(now: datetime) -> list[Period]:
    newest = Period.of(now)
    months = newest.year * 12 + newest.month - 1
    return [
        Period((months - back) // 12, (months - back) % 12 + 1) for back in range(PERIODS_SHOWN)
    ]


def _need_money(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    return actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Where the money of the visitor's organisation is, and where it went in a month."""
    actor = _need_money(request)
    now = timezone.now()
    period = _period(request, now)
    spent = money.spend_by_cost_centre(actor, period)[:LINES_MAX]
    owed = list(money.debts(actor, period)[:LINES_MAX])
    accounts = [
        row for row in money.accounts(actor).order_by("kind", "title")[:LINES_MAX] if row.kind
    ]
    names = money.party_names(
        {each.tenant_id for each in spent}
        | {each.debtor_id for each in owed}
        | {each.creditor_id for each in owed if each.creditor_id}
    )
    balance = money.trial_balance(actor)
    context = {
        "period": period,
        "periods": _last_periods(now),
        "accounts": accounts,
        "spent": [{"row": row, "tenant": names.get(row.tenant_id, "")} for row in spent],
        "most": max((row.charged_nanos for row in spent), default=0),
        "debts": [
            {
                "row": row,
                "debtor": names.get(row.debtor_id, str(row.debtor_id)),
                "creditor": names.get(row.creditor_id, "the platform")
                if row.creditor_id
                else "the platform",
            }
            for row in owed
        ],
        "balance": balance,
        "off": _sums(balance),
        "sees_all": actor.sees_all,
        "formats": exports.FORMATS,
    }
    return page(request, "pages/finance.html", context)


def _sums(balance: money.TrialBalance) -> dict[str, int]:
    """Return, by currency, what all accounts together are off zero by."""
    sums = dict(balance.others_nanos)
    for row, nanos in balance.totals:
        sums[row.currency] = sums.get(row.currency, 0) + nanos
    return sums


@require_safe
def statement(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """One account's statement of a month."""
    actor = _need_money(request)
    now = timezone.now()
    period = _period(request, now)
    account = AccountId(account_id)
    lines = money.statement_lines(actor, account, period).order_by("position")[:LINES_MAX]
    told = money.statement(actor, account, period)
    context: dict[str, Any] = {
        "statement": told,
        "by_kind": [(KINDS.get(kind, kind), nanos) for kind, nanos in told.by_kind.items()],
        "lines": list(money.with_balances(actor, account, lines)),
        "lines_max": LINES_MAX,
        "period": period,
        "periods": _last_periods(now),
        "holds": money.holds(actor, account)
        .filter(state="placed")
        .order_by("-placed_at")[:LINES_MAX],
        "kinds": KINDS,
    }
    return page(request, "pages/statement.html", context)


@require_safe
def export(request: HttpRequest, name: str) -> StreamingHttpResponse:
    """Send a month as a file. The name says up to which event it was made."""
    actor = _need_money(request)
    period = read_period(request.GET.get("period", ""))
    position = read_up_to(MONEY)
    kind = exports.format_named(name)
    answer = StreamingHttpResponse(
        exports.export(actor, name, period=period, position=position),
        content_type=f"{kind.media_type}; charset=utf-8",
    )
    file = f"offpeak-{name}-{period}-at-{position}.{kind.suffix}"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    return answer
