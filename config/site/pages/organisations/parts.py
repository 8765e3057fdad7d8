"""One member of an organisation, and one of its accounts: roles, funds, budget."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.pages.organisations.forms import BudgetForm, FundsForm, RolesForm, tell
from config.site.pages.organisations.views import address_of
from ledger import commands, queries, unlocking
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.api.accounts import FundsByPlatformOnly
from ledger.domain.accounts import PAYING_KINDS, AccountUnknown
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID, MemberUnknown
from ledger.domain.refusal import Forbidden, Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.models import AccountRow, TenantRow


@require_http_methods(["GET", "HEAD", "POST"])
def member(request: HttpRequest, tenant_id: UUID, user_id: UUID) -> HttpResponse:
    """Show a member; sent, change what they may do."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    row = queries.members(actor, tenant.tenant_id).filter(user_id=user_id).first()
    if row is None:
        raise MemberUnknown(user_id=user_id)
    person = queries.people([user_id]).get(user_id)
    units = dict(
        queries.subscribers(actor, tenant.tenant_id)
        .order_by("title")
        .values_list("subscriber_id", "title")
    )
    initial = {"roles": row.roles, "unit": str(row.subscriber_id or "")}
    form = RolesForm(request.POST or None, units=units, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            position = commands.change_member(
                default_store(),
                tenant_id=TenantId(tenant.tenant_id),
                user_id=UserId(user_id),
                roles=form.cleaned_data["roles"],
                subscriber_id=form.subscriber_id(),
                by=meta_of(actor, form.cleaned_data["token"]),
                now=timezone.now(),
            )
        except Refusal as refused:
            tell(form, refused)
        else:
            back = _back(actor, tenant, user_id, keeps="operator" in form.cleaned_data["roles"])
            return done(request, back, position, f"{person or 'The member'}: roles are changed.")
    context = {
        "tenant": tenant,
        "person": person,
        "row": row,
        "form": form,
        "me": actor.user_id,
        "can_unlock": actor.user_id != user_id and unlocking.has_second_factor(UserId(user_id)),
    }
    return page(request, "pages/member.html", context, invalid=bool(form.errors))


@require_POST
def remove(request: HttpRequest, tenant_id: UUID, user_id: UUID) -> HttpResponse:
    """End a membership."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    position = commands.remove_member(
        default_store(),
        tenant_id=TenantId(tenant.tenant_id),
        user_id=UserId(user_id),
        by=meta_of(actor),
        now=timezone.now(),
    )
    back = _back(actor, tenant, user_id, keeps=False)
    return done(request, back, position, "The membership has ended.")


@require_POST
def unlock(request: HttpRequest, tenant_id: UUID, user_id: UUID) -> HttpResponse:
    """Remove a second factor that a member has lost."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    removed = unlocking.remove_second_factor(
        tenant, UserId(user_id), actor=actor, by=meta_of(actor), now=timezone.now()
    )
    told = "They are told by mail." if removed.mailed else "Tell them: no mail was sent."
    back = f"{address_of(tenant)}/members/{user_id}"
    return done(request, back, removed.position, f"The second factor is removed. {told}")


def _back(actor: Actor, tenant: TenantRow, user_id: UUID, *, keeps: bool) -> str:
    """Return where to go on; who gave up their own role sees the organisation's page no more."""
    is_own = actor.user_id == user_id and actor.tenant_id == tenant.tenant_id
    return "/settings" if is_own and not keeps else address_of(tenant)


@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest, tenant_id: UUID, account_id: UUID) -> HttpResponse:
    """Show an account; forms sent here add funds, or set how far it may go below zero."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    row = queries.account(actor, AccountId(account_id))
    if row.tenant_id != tenant.tenant_id or row.kind not in PAYING_KINDS:
        raise AccountUnknown(account_id=account_id)
    do = request.POST.get("do") if request.method == "POST" else None
    limit = None if row.overdraft_nanos is None else Money(row.overdraft_nanos, row.currency)
    funds = FundsForm(
        request.POST if do == "funds" else None, prefix="funds", currency=row.currency
    )
    budget = BudgetForm(
        request.POST if do == "budget" else None,
        prefix="budget",
        currency=row.currency,
        initial={"overdraft": limit},
    )
    forms: dict[str, FundsForm | BudgetForm] = {"funds": funds, "budget": budget}
    sent = forms.get(do or "")
    if sent is not None and sent.is_valid():
        try:
            position, said = (_add if do == "funds" else _set)(actor, row, sent)
        except Refusal as refused:
            if isinstance(refused, Forbidden) and do == "funds":
                raise
            tell(sent, refused)
        else:
            return done(request, f"{address_of(tenant)}/accounts/{account_id}", position, said)
    context = {
        "tenant": tenant,
        "account": row,
        "funds_form": funds,
        "budget_form": budget,
        "platform": actor.has_platform_money,
    }
    invalid = bool(funds.errors or budget.errors)
    return page(request, "pages/organisation_account.html", context, invalid=invalid)


def _add(actor: Actor, row: AccountRow, form: FundsForm | BudgetForm) -> tuple[Position, str]:
    if not actor.has_platform_money:
        raise FundsByPlatformOnly()
    data = form.cleaned_data
    _, position = commands.credit_payment(
        default_store(),
        account_id=AccountId(row.account_id),
        money=data["amount"],
        reference=data["reference"],
        platform_id=PLATFORM_ID,
        by=meta_of(actor, data["token"]),
        now=timezone.now(),
    )
    return position, f"{data['amount']} is added."


def _set(actor: Actor, row: AccountRow, form: FundsForm | BudgetForm) -> tuple[Position, str]:
    limit = form.cleaned_data["overdraft"]
    position = commands.set_budget(
        default_store(),
        account_id=AccountId(row.account_id),
        overdraft_nanos=None if limit is None else limit.nanos,
        may_raise=actor.has_platform_money,
        by=meta_of(actor, form.cleaned_data["token"]),
        now=timezone.now(),
    )
    return position, "The budget is set."
