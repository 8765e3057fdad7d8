"""A wallet: what is in it, topping it up, saved cards, topping up by itself, money back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.finance.kinds import KINDS
from config.site.pages.wallet.forms import AutomaticForm, RefundForm, TopUpForm
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands import refunds as refunding
from ledger.commands import wallet as commands
from ledger.domain.ids import AccountId, PaymentId, RefundId
from ledger.domain.money import decimal_of
from ledger.domain.refusal import Forbidden, Refusal
from ledger.eventstore import default_store
from ledger.funding import setup
from ledger.funding.settling import refundable_now
from ledger.models import AccountRow, WalletRow
from ledger.payments import default_payments
from ledger.queries import account as account_seen
from ledger.queries import people, statements
from ledger.queries import wallet as queries
from ledger.queries.money import party_names
from marketplace.queries import money_waits
from marketplace.queries.depletion import forecasts

SHOWN_MAX = 10
WALLETS_MAX = 200
LINES_MAX = 15
WAITED_FOR = timedelta(hours=1)
"""How long after it was asked for the page of a top-up goes on looking whether it came in."""


class RefundDecidedByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform approve refunds."""


def _need(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    return actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """The wallets that the visitor may see; where it is one, that one."""
    actor = _need(request)
    found = list(queries.wallets(actor)[: WALLETS_MAX + 1])
    if len(found) == 1:
        return _show(request, actor, found[0])
    names = party_names({row.tenant_id for row in found if row.tenant_id})
    context = {
        "wallets": [
            {"row": row, "tenant": names.get(row.tenant_id, "") if row.tenant_id else ""}
            for row in found[:WALLETS_MAX]
        ],
        "more": len(found) > WALLETS_MAX,
        "said": setup.words(),
        "asked": _asked(actor),
    }
    return page(request, "pages/wallets.html", context)


@require_safe
def one(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """One wallet."""
    actor = _need(request)
    return _show(request, actor, account_seen(actor, AccountId(account_id)))


@require_POST
def top_up(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Ask for a top-up and go where it is paid."""
    actor, row = _wallet(request, account_id)
    methods = queries.methods(actor, AccountId(row.pk))
    form = TopUpForm(request.POST, currency=row.currency, methods=methods)
    if not form.is_valid():
        return _show(request, actor, row, top_up=form)
    token, method = form.cleaned_data["token"], form.cleaned_data["method"]
    payment_id = PaymentId(_named(row, token))
    try:
        setup.need_payments()
        position = commands.request_top_up(
            default_store(),
            account_id=AccountId(row.pk),
            payment_id=payment_id,
            money=form.cleaned_data["amount"],
            way="saved" if method else "checkout",
            method=method,
            asked_by=actor.user_id,
            by=meta_of(actor, token),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, actor, row, top_up=form, refusal=refusal)
    return done(request, f"/wallet/top-ups/{payment_id}", position)


@require_safe
def payment(request: HttpRequest, payment_id: UUID) -> HttpResponse:
    """One top-up: where it is paid, and whether it came in. It looks again by itself."""
    return page(request, "pages/top_up.html", _payment(request, payment_id))


@require_safe
def payment_state(request: HttpRequest, payment_id: UUID) -> HttpResponse:
    """How a top-up stands, and on to where it is paid once there is such a page."""
    context = _payment(request, payment_id)
    answer = page(request, "pages/top_up_state.html", context)
    if context["leaves"]:
        answer["HX-Redirect"] = context["row"].url
    return answer


def _payment(request: HttpRequest, payment_id: UUID) -> dict[str, Any]:
    actor = _need(request)
    row = queries.top_up(actor, PaymentId(payment_id))
    back = next((each for each in ("paid", "left") if each in request.GET), "")
    unfinished = row.state in ("asked", "open") and timezone.now() - row.asked_at < WAITED_FOR
    return {
        "row": row,
        "account": account_seen(actor, AccountId(row.account_id)),
        "back": back,
        "leaves": unfinished and bool(row.url) and not back,
        "waits": unfinished and back != "left",
    }


@require_POST
def automatic(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Let a wallet top itself up, or no more."""
    actor, row = _wallet(request, account_id)
    key = AccountId(row.pk)
    if "end" in request.POST:
        position = commands.end_automatic_top_up(
            default_store(), account_id=key, by=meta_of(actor), now=timezone.now()
        )
        return done(request, f"/wallet/{row.pk}", position, "It tops itself up no more.")
    methods = queries.methods(actor, key)
    form = AutomaticForm(request.POST, currency=row.currency, methods=methods)
    if not form.is_valid():
        return _show(request, actor, row, automatic=form)
    try:
        setup.need_payments()
        position = commands.set_automatic_top_up(
            default_store(),
            account_id=key,
            below=form.cleaned_data["below"],
            amount=form.cleaned_data["amount"],
            most_per_day=form.cleaned_data["most_per_day"],
            method=form.cleaned_data["method"],
            set_by=actor.user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, actor, row, automatic=form, refusal=refusal)
    return done(request, f"/wallet/{row.pk}", position, "It tops itself up from now on.")


@require_POST
def remove_method(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Let a saved card be kept no longer."""
    actor, row = _wallet(request, account_id)
    try:
        position = commands.remove_method(
            default_store(),
            account_id=AccountId(row.pk),
            method=request.POST.get("method", "")[:80],
            asked_by=actor.user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, actor, row, refusal=refusal)
    return done(request, f"/wallet/{row.pk}", position, "The card is used no more.")


@require_POST
def refund(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Ask to have unused money back."""
    actor, row = _wallet(request, account_id)
    form = RefundForm(request.POST, currency=row.currency)
    if not form.is_valid():
        return _show(request, actor, row, refund=form)
    token = form.cleaned_data["token"]
    try:
        setup.need_payments()
        position = refunding.ask_for_refund(
            default_store(),
            account_id=AccountId(row.pk),
            refund_id=RefundId(_named(row, token)),
            money=form.cleaned_data["amount"],
            reason=form.cleaned_data["reason"],
            asked_by=actor.need_person(),
            by=meta_of(actor, token),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, actor, row, refund=form, refusal=refusal)
    return done(request, f"/wallet/{row.pk}", position, "Asked. Somebody else has to approve it.")


@require_POST
def decide(request: HttpRequest, refund_id: UUID) -> HttpResponse:
    """Approve a refund that somebody else asked for, or decline it."""
    actor = _need(request)
    row = queries.refund(actor, refund_id)
    account = account_seen(actor, AccountId(row.account_id))
    key, now, user_id = AccountId(row.account_id), timezone.now(), actor.need_person()
    declining = "decline" in request.POST
    try:
        if not actor.has_platform_money and not (declining and row.asked_by == user_id):
            raise RefundDecidedByPlatformOnly()
        who: dict[str, Any] = {"refund_id": RefundId(row.pk), "by": meta_of(actor), "now": now}
        if declining:
            position = refunding.decline_refund(
                default_store(), account_id=key, declined_by=user_id, **who
            )
        else:
            position = refunding.approve_refund(
                default_store(), account_id=key, approved_by=user_id, **who
            )
    except Refusal as refusal:
        return _show(request, actor, account, refusal=refusal)
    said = "It does not go back." if declining else "It goes back now."
    return done(request, f"/wallet/{row.account_id}", position, said)


def _named(row: AccountRow, token: UUID) -> UUID:
    """Return the id of what a form asks for: its token may come with the form of another wallet."""
    return uuid5(row.pk, str(token))


def _wallet(request: HttpRequest, account_id: UUID) -> tuple[Actor, AccountRow]:
    actor = actor_of(request)
    actor.need("finance", "operator")
    return actor, account_seen(actor, AccountId(account_id))


def _asked(actor: Actor) -> list[dict[str, Any]]:
    """Return the refunds that wait for somebody, with the wallets they are of."""
    rows = list(queries.refunds(actor).filter(state="asked").order_by("asked_at")[:SHOWN_MAX])
    titles = dict(
        queries.wallets(actor)
        .filter(pk__in=[row.account_id for row in rows])
        .values_list("account_id", "title")
    )
    return [{"row": row, "title": titles.get(row.account_id, "")} for row in rows]


def _show(
    request: HttpRequest,
    actor: Actor,
    row: AccountRow,
    *,
    top_up: TopUpForm | None = None,
    automatic: AutomaticForm | None = None,
    refund: RefundForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    key = AccountId(row.pk)
    methods = list(queries.methods(actor, key))
    wallet = queries.wallet(actor, key)
    refunds = list(queries.refunds(actor, key).order_by("-asked_at", "refund_id")[:SHOWN_MAX])
    who = people({each.asked_by for each in refunds})
    context = {
        "row": row,
        "wallet": wallet,
        "short": max(0, -row.available_nanos - (row.overdraft_nanos or 0)),
        "methods": methods,
        "top_ups": queries.top_ups(actor, key).order_by("-asked_at", "payment_id")[:SHOWN_MAX],
        "refunds": [
            {
                "row": each,
                "by": who[each.asked_by].title if each.asked_by in who else "somebody",
                "mine": each.asked_by == actor.user_id,
            }
            for each in refunds
        ],
        "disputes": queries.disputes(actor, key).order_by("-opened_at", "dispute")[:SHOWN_MAX],
        "lines": [(KINDS.get(each.kind, each.kind), each) for each in _lines(actor, key)],
        "refundable": refundable_now(default_store(), row),
        "lasting": forecasts([row.pk], now=timezone.now()).get(key),
        "waiting": _waiting(actor, row),
        "takes": default_payments() is not None,
        "said": setup.words(),
        "may_ask": bool(actor.roles & {"finance", "operator"}),
        "may_decide": actor.has_platform_money,
        "top_up": top_up or TopUpForm(currency=row.currency, methods=methods),
        "automatic": automatic or _automatic_form(row, wallet, methods),
        "refund": refund or RefundForm(currency=row.currency),
    }
    invalid = any(form is not None and form.errors for form in (top_up, automatic, refund))
    return page(request, "pages/wallet.html", context, refusal=refusal, invalid=invalid)


def _waiting(actor: Actor, row: AccountRow) -> list[dict[str, Any]]:
    """Return what waits for money on this account, the first to wait first."""
    rows = money_waits.waits(actor).filter(account_id=row.pk)
    return [
        {"wait": each, "account": row.title} for each in money_waits.told(rows, limit=SHOWN_MAX)
    ]


def _lines(actor: Actor, account_id: AccountId) -> Any:
    return statements.newest_lines(actor, account_id)[:LINES_MAX]


def _automatic_form(row: AccountRow, wallet: WalletRow | None, methods: Any) -> AutomaticForm:
    initial = {"below": "20.00", "amount": "100.00", "most_per_day": "300.00"}
    if wallet is not None and wallet.below_nanos is not None:
        initial = {
            "below": decimal_of(wallet.below_nanos),
            "amount": decimal_of(wallet.amount_nanos or 0),
            "most_per_day": decimal_of(wallet.most_per_day_nanos or 0),
            "method": wallet.method,
        }
    return AutomaticForm(initial=initial, currency=row.currency, methods=methods)
