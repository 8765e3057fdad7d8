"""Money: accounts, what each cost centre spent, who owes whom, statements, and exports."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.finance.kinds import ACCOUNT_KINDS, KINDS
from config.site.pages.finance.trial_balance import trial_of
from config.site.parts.figures import amount_text, places_of
from ledger import exports
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.days import local_day
from ledger.domain.ids import AccountId
from ledger.domain.netting import Net, Owed, netted
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period, PeriodUnreadable, read_period
from ledger.domain.span import Window
from ledger.models import AccountRow, DebtRow
from ledger.queries import money, statements
from ledger.queries.closing import month
from marketplace.queries import money_waits
from marketplace.queries.depletion import Forecast, forecasts

LINES_MAX = 200
LINES_SHOWN = 100
"""Lines of a statement on one page."""
PERIODS_SHOWN = 6


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
    spent = money.spend_by_cost_centre(actor, period)
    owed = _owed(money.debts(actor, period))
    told = money.telling_low(money.accounts(actor), now=now).order_by("kind", "title")
    accounts = [row for row in told if row.kind]
    lasting = forecasts([row.pk for row in accounts[:LINES_MAX]], now=now)
    names = money.party_names(
        {each.tenant_id for each in spent[:LINES_MAX]}
        | {each.debtor_id for each in owed}
        | {each.creditor_id for each in owed}
    )
    context = {
        "tab": "overview",
        "period": period,
        "periods": _last_periods(now),
        "accounts": [_account(row, lasting.get(AccountId(row.pk))) for row in accounts[:LINES_MAX]],
        "waiting": _waiting(actor),
        "low": [_low(row) for row in money.running_low(actor, now=now)[:LINES_MAX]],
        "accounts_more": max(0, len(accounts) - LINES_MAX),
        "spent": [
            {"row": row, "tenant": names.get(row.tenant_id, "")} for row in spent[:LINES_MAX]
        ],
        "spent_more": max(0, len(spent) - LINES_MAX),
        "most": max((row.charged_nanos for row in spent), default=0),
        "debts": [
            {
                "row": row,
                "debtor": names.get(row.debtor_id, str(row.debtor_id)),
                "creditor": names.get(row.creditor_id, str(row.creditor_id)),
            }
            for row in owed[:LINES_MAX]
        ],
        "debts_more": max(0, len(owed) - LINES_MAX),
        "trial": trial_of(money.trial_balance(actor)),
        "sees_all": actor.sees_all,
        "formats": exports.FORMATS,
        "month": month(period),
    }
    return page(request, "pages/finance.html", context)


def _owed(rows: Iterable[DebtRow]) -> list[Net]:
    """Return who owes whom, set off against each other: the platform's fees are owed to it."""
    return netted(
        Owed(row.debtor_id, row.creditor_id or PLATFORM_ID, row.nanos, row.currency) for row in rows
    )


def _low(row: AccountRow) -> str:
    left = amount_text(row.available_nanos + (row.overdraft_nanos or 0), row.currency)
    return (
        f"{row.title} runs low: {left} can still be set aside, less than it was charged in the last"
        " day. Bids and steps of leases that it does not cover are refused."
    )


def _waiting(actor: Actor) -> list[dict[str, Any]]:
    """Return work that waits for money, with the account that has to cover it."""
    waits = money_waits.told(money_waits.waits(actor), limit=LINES_MAX)
    return [{"wait": each, "account": each.account} for each in waits]


def _account(row: AccountRow, lasting: Forecast | None) -> dict[str, Any]:
    """Return an account with what its kind means, how far it may go below zero, how it lasts."""
    limit = "" if row.kind in PAYING_KINDS else "takes no holds"
    if row.kind in PAYING_KINDS and row.overdraft_nanos is None:
        limit = "unlimited: billed inside the organisation"
    return {"row": row, "means": ACCOUNT_KINDS[row.kind], "limit": limit, "lasting": lasting}


@require_safe
def statement(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """One account's statement of a month, newest first, by page, kind and day."""
    actor = _need_money(request)
    now = timezone.now()
    day = _day(request)
    period = _period(request, now if day is None else day.starts_at)
    account, kind = AccountId(account_id), request.GET.get("kind", "")
    told = statements.statement(actor, account, period)
    rows = statements.statement_lines(actor, account, period, kind=kind, within=day)
    part = statements.page_of_lines(
        rows,
        size=LINES_SHOWN,
        before=request.GET.get("before", ""),
        after=request.GET.get("after_line", ""),
    )
    lines = list(statements.with_balances(actor, account, part.rows))
    currency = told.account.currency
    chosen = {"period": str(period), "kind": kind, "day": request.GET.get("day", "") if day else ""}
    context: dict[str, Any] = {
        "statement": told,
        "means": ACCOUNT_KINDS.get(told.account.kind, ""),
        "by_kind": [(KINDS.get(name, name), nanos) for name, nanos in told.by_kind.items()],
        "lines": [(KINDS.get(each.posting.kind, each.posting.kind), each) for each in lines],
        "found": rows.count() if kind or day else told.lines,
        "places": places_of(
            (nanos for each in lines for nanos in (each.posting.nanos, each.balance_nanos)),
            currency,
        ),
        "newer": part.newer and urlencode({**chosen, "after_line": part.newer}),
        "older": part.older and urlencode({**chosen, "before": part.older}),
        "chosen": chosen,
        "period": period,
        "periods": _last_periods(now),
        "accounts": [row for row in money.accounts(actor).order_by("kind", "title") if row.kind],
        "holds": money.holds(actor, account)
        .filter(state="placed")
        .order_by("-placed_at")[:LINES_MAX],
        "lines_max": LINES_MAX,
        "kinds": [(name, KINDS.get(name, name)) for name in told.by_kind],
        "now": now,
    }
    return page(request, "pages/statement.html", context)


@require_safe
def account_chosen(request: HttpRequest) -> HttpResponse:
    """Go to the statement of the account that was chosen in the form of another one's."""
    _need_money(request)
    try:
        account_id = UUID(request.GET.get("account", ""))
    except ValueError:
        return redirect("/finance")
    kept = {name: request.GET.get(name, "") for name in ("period", "kind", "day")}
    chosen = urlencode({name: value for name, value in kept.items() if value})
    return redirect(f"/finance/accounts/{account_id}?{chosen}")


def _day(request: HttpRequest) -> Window | None:
    """Return the day that was asked for, in the reader's zone; None for none or a wrong one."""
    try:
        day = date.fromisoformat(request.GET.get("day", ""))
        return local_day(day, timezone.get_current_timezone())
    except (ValueError, OverflowError):
        return None


@require_safe
def export(request: HttpRequest, name: str) -> StreamingHttpResponse:
    """Send a month as a file. The name says as of which event it is: `position`, or the newest."""
    actor = _need_money(request)
    period = read_period(request.GET.get("period", ""))
    position = exports.position_asked(request.GET.get("position"))
    kind = exports.format_named(name)
    answer = StreamingHttpResponse(
        exports.export(actor, name, period=period, position=position),
        content_type=kind.content_type,
    )
    file = f"offpeak-{name}-{period}-at-{position}.{kind.suffix}"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    return answer
