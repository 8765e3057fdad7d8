"""Routes of the book of record, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from ledger.api import accounts, invitations, money, parties, periods, tokens

api_urls: list[URLPattern] = [
    path("me", parties.Me.as_view()),
    path("tenants", parties.Tenants.as_view()),
    path("tenants/<uuid:tenant_id>", parties.TenantDetail.as_view()),
    path("tenants/<uuid:tenant_id>/subscribers", parties.Subscribers.as_view()),
    path("tenants/<uuid:tenant_id>/members", parties.Members.as_view()),
    path("tenants/<uuid:tenant_id>/members/<uuid:user_id>", parties.MemberDetail.as_view()),
    path(
        "tenants/<uuid:tenant_id>/members/<uuid:user_id>/second-factor",
        parties.SecondFactor.as_view(),
    ),
    path("tenants/<uuid:tenant_id>/invitations", invitations.Invitations.as_view()),
    path(
        "tenants/<uuid:tenant_id>/invitations/<uuid:invitation_id>",
        invitations.InvitationDetail.as_view(),
    ),
    path("tenants/<uuid:tenant_id>/accounts", accounts.TenantAccounts.as_view()),
    path("subscribers", parties.Subscribers.as_view()),
    path("members", parties.Members.as_view()),
    path("members/<uuid:user_id>", parties.MemberDetail.as_view()),
    path("members/<uuid:user_id>/second-factor", parties.SecondFactor.as_view()),
    path("tokens", tokens.Tokens.as_view()),
    path("tokens/<uuid:token_id>", tokens.TokenDetail.as_view()),
    path("accounts", accounts.Accounts.as_view()),
    path("accounts/<uuid:account_id>", accounts.AccountDetail.as_view()),
    path("accounts/<uuid:account_id>/funds", accounts.Funds.as_view()),
    path("accounts/<uuid:account_id>/budget", accounts.AccountBudget.as_view()),
    path("accounts/<uuid:account_id>/holds", accounts.Holds.as_view()),
    path("accounts/<uuid:account_id>/statement", money.Statement.as_view()),
    path("trial-balance", money.TrialBalance.as_view()),
    path("spend", money.SpendByCostCentre.as_view()),
    path("debts", money.Debts.as_view()),
    path("periods", periods.Periods.as_view()),
    path("periods/<str:period>", periods.PeriodDetail.as_view()),
    path("periods/<str:period>/soft-close", periods.SoftClose.as_view()),
    path("periods/<str:period>/close", periods.Close.as_view()),
    path("periods/<str:period>/reopening", periods.Reopening.as_view()),
    path("periods/<str:period>/reopening/approve", periods.ReopeningApproved.as_view()),
    path("periods/<str:period>/reopening/decline", periods.ReopeningDeclined.as_view()),
    path("exports", money.Exports.as_view()),
    path("exports/manifest", money.ExportManifest.as_view()),
]
