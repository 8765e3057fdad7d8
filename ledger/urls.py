"""Routes of the book of record, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from ledger.api import accounts, invitations, money, notices, parties, periods, tokens, webhooks

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
    path("notices", notices.Notices.as_view()),
    path("notices/read", notices.NoticesRead.as_view()),
    path("notices/wishes", notices.Wishes.as_view()),
    path("notices/wishes/<str:topic>", notices.WishOfTopic.as_view()),
    path("notices/<uuid:notice_id>", notices.NoticeDetail.as_view()),
    path("webhooks", webhooks.Webhooks.as_view()),
    path("webhooks/<uuid:webhook_id>", webhooks.WebhookDetail.as_view()),
    path("webhooks/<uuid:webhook_id>/secret", webhooks.WebhookSecret.as_view()),
    path("webhooks/<uuid:webhook_id>/test", webhooks.WebhookTest.as_view()),
    path("webhooks/<uuid:webhook_id>/on", webhooks.WebhookOn.as_view()),
    path("webhooks/<uuid:webhook_id>/deliveries", webhooks.Deliveries.as_view()),
    path(
        "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/again",
        webhooks.DeliveryAgain.as_view(),
    ),
    path("exports", money.Exports.as_view()),
    path("exports/manifest", money.ExportManifest.as_view()),
]
