"""What is done by the clock about money: of work that runs or waits, and in the books."""

from __future__ import annotations

import marketplace.depleting
import marketplace.loops
from config.env import Env
from config.money import paying_loops
from config.processes.loops import Loop
from ledger.carrying import carry_accounts_forward
from ledger.closing import freeze_closed
from ledger.disputing import decide_overdue
from ledger.invoice_mail import mail_documents
from ledger.invoicing import see_to_invoices
from ledger.paying import settle_due
from ledger.receivables import see_to_receivables
from ledger.self_billing import bill_settlements
from ledger.stating import see_to_papers
from metering.comparing import compare_meters
from metering.domain.two_meters import PPM, Tolerance


def money_loops(env: Env) -> tuple[Loop, ...]:
    """Return the loops that watch accounts and budgets, and keep the books."""
    tolerance = Tolerance(
        ppm=env.meters_differ_percent * PPM // 100, millis=env.meters_differ_seconds * 1000
    )
    return (
        Loop(
            "money-waits",
            5.0,
            lambda store, now: (
                marketplace.loops.see_to_money_that_is_gone(store, now=now)
                + marketplace.loops.go_on_where_there_is_money(store, now=now)
            ),
        ),
        Loop(
            "account-watch",
            30.0,
            lambda store, now: marketplace.depleting.watch_accounts(store, now=now),
        ),
        _budgets(),
        Loop(
            "compared-meters",
            60.0,
            lambda store, now: compare_meters(store, tolerance=tolerance, now=now),
        ),
        Loop("disputes", 60.0, lambda store, now: decide_overdue(store, now=now)),
        Loop("carried-accounts", 60.0, lambda store, now: carry_accounts_forward(store, now=now)),
        Loop("settlements", 30.0, lambda store, now: settle_due(store, now=now)),
        Loop("closed-months", 30.0, lambda store, now: freeze_closed(store, now=now)),
        *paying_loops(env),
        Loop("invoice-mail", 120.0, lambda store, now: mail_documents(store, now=now)),
        Loop("receivables", 60.0, lambda store, now: see_to_receivables(store, now=now)),
        Loop("invoices", 15.0, lambda store, now: see_to_invoices(store, now=now)),
        Loop(
            "papers",
            15.0,
            lambda store, now: bill_settlements(store, now=now) + see_to_papers(store, now=now),
        ),
    )


def _budgets() -> Loop:
    """Return the loop that tells budgets what was spent, so that they warn and block."""
    watch = marketplace.loops.BudgetWatch()
    return Loop("budgets", 5.0, lambda store, now: watch.run_once(store, now=now))
