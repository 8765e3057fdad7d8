"""Every page of the site, in the order of its navigation."""

from __future__ import annotations

from django.urls import URLPattern, path

from config.site.pages.account import coming_home, idle_rule, joining, settings, work_secrets
from config.site.pages.bids import advice
from config.site.pages.bids import views as bids
from config.site.pages.disputes import views as disputes
from config.site.pages.fairness import trial as fairness_try
from config.site.pages.fairness import views as fairness
from config.site.pages.finance import burst, costs, entries, export_runs, matrix, months
from config.site.pages.finance import views as finance
from config.site.pages.folders import views as folders
from config.site.pages.invoices import details as billing_details
from config.site.pages.invoices import owed, papers
from config.site.pages.invoices import views as invoices
from config.site.pages.lab import views as lab
from config.site.pages.leases import idle
from config.site.pages.leases import prices as lease_prices
from config.site.pages.leases import views as leases
from config.site.pages.market import ops, rounds, supply
from config.site.pages.market import views as market
from config.site.pages.notices import views as notices
from config.site.pages.notices import webhooks
from config.site.pages.offers import listing as offer_listing
from config.site.pages.offers import views as offers
from config.site.pages.organisations import parts as organisation_parts
from config.site.pages.organisations import views as organisations
from config.site.pages.owners import agents, health, hosts
from config.site.pages.owners import dashboard as owner
from config.site.pages.payouts import banks, over_stripe, self_billing
from config.site.pages.payouts import one as payout
from config.site.pages.payouts import views as payouts
from config.site.pages.policies import apply_plan as policies_together
from config.site.pages.policies import quota_requests
from config.site.pages.policies import views as policies
from config.site.pages.spending import budgets, comparison
from config.site.pages.spending import views as spend
from config.site.pages.volumes import views as volumes
from config.site.pages.wallet import views as wallet
from ledger.signin import demo_sign_in, switch_tenant

page_urls: list[URLPattern] = [
    path("", market.index),
    path("market/figures", market.figures),
    path("offers", offers.index),
    path("offers/new", offer_listing.new),
    path("offers/preview", offer_listing.preview),
    path("offers/<uuid:offer_id>", offers.page_of_offer),
    path("offers/<uuid:offer_id>/explain", advice.for_offer),
    path("run", bids.run),
    path("bids", bids.index),
    path("bids/new", bids.new),
    path("bids/estimate", bids.estimate),
    path("bids/<uuid:bid_id>", bids.one),
    path("bids/<uuid:bid_id>/state", bids.state),
    path("bids/<uuid:bid_id>/advice", advice.for_bid),
    path("bids/<uuid:bid_id>/cancel", bids.cancel),
    path("bids/<uuid:bid_id>/end-chain", bids.end_chain),
    path("leases", leases.index),
    path("leases/<uuid:lease_id>", leases.one),
    path("leases/<uuid:lease_id>/state", leases.state),
    path("leases/<uuid:lease_id>/idle/keep", idle.keep),
    path("leases/<uuid:lease_id>/idle/rule", idle.rule),
    path("leases/<uuid:lease_id>/end", leases.end),
    path("leases/<uuid:lease_id>/open", leases.open_port),
    path("leases/<uuid:lease_id>/checkpoint", leases.checkpoint),
    path("leases/<uuid:lease_id>/extend", leases.extend),
    path("leases/<uuid:lease_id>/prices", lease_prices.propose),
    path("leases/<uuid:lease_id>/prices/<uuid:proposal_id>", lease_prices.answer),
    path("leases/<uuid:lease_id>/reclaim", leases.reclaim),
    path("leases/<uuid:lease_id>/sell", leases.sell),
    path("leases/<uuid:lease_id>/take", leases.take),
    path("folders", folders.index),
    path("folders/<uuid:folder_id>", folders.one),
    path("folders/<uuid:folder_id>/file", folders.file),
    path("folders/<uuid:folder_id>/all", folders.everything),
    path("folders/<uuid:folder_id>/remove", folders.remove),
    path("volumes", volumes.index),
    path("volumes/<str:volume>", volumes.one),
    path("volumes/<str:volume>/all", volumes.everything),
    path("volumes/<str:volume>/file", volumes.file),
    path("volumes/<str:volume>/extend", volumes.extend),
    path("volumes/<str:volume>/resize", volumes.resize),
    path("volumes/<str:volume>/remove", volumes.remove),
    path("rounds", rounds.index),
    path("rounds/<uuid:round_id>", rounds.one),
    path("fairness", fairness.index),
    path("fairness/try", fairness_try.index),
    path("fairness/policies", policies.index),
    path("fairness/policies/together", policies_together.together),
    path("fairness/policies/<str:kind>", policies.one),
    path("fairness/overrides/<uuid:override_id>/lift", policies.lift),
    path("fairness/requests/new", quota_requests.new),
    path("fairness/requests/<uuid:request_id>/decide", quota_requests.decide),
    path("fairness/requests/<uuid:request_id>/take-up", quota_requests.take),
    path("owner", owner.index),
    path("owner/hosts/new", hosts.new),
    path("owner/hosts/<uuid:host_id>/agent", agents.of_host),
    path("owner/hosts/<uuid:host_id>/agent/tokens/<uuid:token_id>/revoke", agents.revoke),
    path("owner/hosts/<uuid:host_id>/health", health.of_host),
    path("owner/hosts/<uuid:host_id>/drain", health.drain),
    path("owner/hosts/<uuid:host_id>/maintenance/<uuid:maintenance_id>/cancel", health.cancel),
    path("owner/hosts/<uuid:host_id>/reclaim", owner.reclaim),
    path("owner/hosts/<uuid:host_id>/retire", hosts.retire),
    path("owner/hosts/<uuid:host_id>/turn", hosts.turn),
    path("supply", supply.index),
    path("finance", finance.index),
    path("finance/accounts", finance.account_chosen),
    path("finance/accounts/<uuid:account_id>", finance.statement),
    path("finance/disputes", disputes.index),
    path("finance/disputes/<uuid:dispute_id>", disputes.one),
    path("finance/disputes/<uuid:dispute_id>/say", disputes.say),
    path("finance/disputes/<uuid:dispute_id>/decide", disputes.decide),
    path("leases/<uuid:lease_id>/contest", disputes.contest),
    path("finance/export/<str:name>", finance.export),
    path("finance/matrix", matrix.index),
    path("finance/costs", costs.index),
    path("finance/costs/file", costs.file),
    path("finance/entries", entries.index),
    path("finance/entries/<uuid:entry_id>", entries.one),
    path("finance/exports", export_runs.index),
    path("finance/exports/ask", export_runs.ask),
    path("finance/exports/mapping", export_runs.mapping),
    path("finance/exports/plans", export_runs.plan),
    path("finance/exports/plans/<uuid:plan_id>/end", export_runs.end_plan),
    path("finance/exports/state", export_runs.state),
    path("finance/exports/<uuid:export_id>/file", export_runs.file),
    path("finance/months", months.index),
    path("finance/months/<str:period>", months.one),
    path("finance/months/<str:period>/exports", months.exports_state),
    path("finance/months/<str:period>/soft-close", months.soft_close),
    path("finance/months/<str:period>/close", months.close),
    path("finance/months/<str:period>/ask", months.ask),
    path("finance/months/<str:period>/approve", months.approve),
    path("finance/months/<str:period>/decline", months.decline),
    path("payouts", payouts.index),
    path("payouts/self-billing", self_billing.set_agreement),
    path("payouts/files", payouts.write_file),
    path("payouts/bank-notice", banks.hear),
    path("payouts/files/<uuid:file_id>", payouts.load_file),
    path("payouts/of/<uuid:account_id>/settle", payouts.settle),
    path("payouts/of/<uuid:account_id>/schedule", payouts.schedule),
    path("payouts/of/<uuid:account_id>/details", payouts.details),
    path("payouts/of/<uuid:account_id>/details/<uuid:details_id>/confirm", payouts.confirm),
    path("payouts/of/<uuid:account_id>/details/<uuid:details_id>/withdraw", payouts.withdraw),
    path("payouts/of/<uuid:account_id>/stripe", over_stripe.begin),
    path("payouts/of/<uuid:account_id>/stripe/onboarding", over_stripe.onboard),
    path("payouts/of/<uuid:account_id>/stripe/account", over_stripe.dashboard),
    path("payouts/of/<uuid:account_id>/stripe/look", over_stripe.look),
    path("payouts/of/<uuid:account_id>/channel", over_stripe.channel),
    path("payouts/<uuid:payout_id>", payout.one),
    path("payouts/<uuid:payout_id>/statement", payout.statement),
    path("payouts/<uuid:payout_id>/paper", payout.paper),
    path("payouts/<uuid:payout_id>/approve", payout.approve),
    path("payouts/<uuid:payout_id>/cancel", payout.cancel),
    path("payouts/<uuid:payout_id>/paid", payout.paid),
    path("payouts/<uuid:payout_id>/returned", payout.returned),
    path("payouts/<uuid:payout_id>/reversals", over_stripe.reverse),
    path("notifications", notices.index),
    path("notifications/bell", notices.bell),
    path("notifications/read", notices.read),
    path("notifications/<uuid:notice_id>", notices.open_one),
    path("spend", spend.index),
    path("spend/comparison", comparison.index),
    path("budgets", budgets.index),
    path("budgets/<uuid:budget_id>", budgets.one),
    path("budgets/<uuid:budget_id>/end", budgets.end),
    path("budgets/<uuid:budget_id>/grant", budgets.grant),
    path("budgets/<uuid:budget_id>/grants/<uuid:grant_id>/decide", budgets.decide),
    path("wallet", wallet.index),
    path("wallet/<uuid:account_id>", wallet.one),
    path("wallet/<uuid:account_id>/top-up", wallet.top_up),
    path("wallet/<uuid:account_id>/automatic", wallet.automatic),
    path("wallet/<uuid:account_id>/cards/remove", wallet.remove_method),
    path("wallet/<uuid:account_id>/refund", wallet.refund),
    path("wallet/refunds/<uuid:refund_id>", wallet.decide),
    path("wallet/top-ups/<uuid:payment_id>", wallet.payment),
    path("wallet/top-ups/<uuid:payment_id>/state", wallet.payment_state),
    path("documents", papers.index),
    path("documents/issue", papers.issue),
    path("documents/<uuid:paper_id>", papers.one),
    path("documents/<uuid:paper_id>/pdf", papers.file),
    path("invoices", invoices.index),
    path("invoices/issue", invoices.issue),
    path("invoices/billing-details", billing_details.index),
    path("invoices/credit-notes/<uuid:credit_id>/pdf", invoices.note_file),
    path("invoices/credit-notes/<uuid:credit_id>/approve", invoices.approve),
    path("invoices/credit-notes/<uuid:credit_id>/decline", invoices.decline),
    path("invoices/<str:number>", invoices.one),
    path("invoices/<str:number>/pdf", invoices.file),
    path("invoices/<str:number>/credit", invoices.credit),
    path("invoices/<str:number>/payment", owed.enter),
    path("invoices/<str:number>/write-off", owed.write_off),
    path("invoices/<str:number>/write-off/decide", owed.decide),
    path("lab", lab.index),
    path("ops", ops.index),
    path("ops/burst", burst.index),
    path("ops/health", health.everywhere),
    path("settings", settings.index),
    path("settings/notifications", notices.settings),
    path("settings/webhooks", webhooks.index),
    path("settings/webhooks/<uuid:webhook_id>", webhooks.one),
    *[
        path(f"settings/webhooks/<uuid:webhook_id>/{step}", webhooks.act, {"step": step})
        for step in ("test", "on", "secret", "remove")
    ],
    path("settings/webhooks/<uuid:webhook_id>/messages/<uuid:delivery_id>/again", webhooks.again),
    path("settings/secrets", work_secrets.index),
    path("settings/secrets/remove", work_secrets.remove),
    path("settings/idle", idle_rule.index),
    path("settings/coming-home", coming_home.index),
    path("settings/organisation", switch_tenant),
    path("settings/organisations", organisations.index),
    path("settings/organisations/<uuid:tenant_id>", organisations.one),
    path(
        "settings/organisations/<uuid:tenant_id>/invitations/<uuid:invitation_id>/revoke",
        organisations.revoke,
    ),
    path(
        "settings/organisations/<uuid:tenant_id>/members/<uuid:user_id>", organisation_parts.member
    ),
    path(
        "settings/organisations/<uuid:tenant_id>/members/<uuid:user_id>/remove",
        organisation_parts.remove,
    ),
    path(
        "settings/organisations/<uuid:tenant_id>/members/<uuid:user_id>/second-factor",
        organisation_parts.unlock,
    ),
    path(
        "settings/organisations/<uuid:tenant_id>/accounts/<uuid:account_id>",
        organisation_parts.account,
    ),
    path("invitations/", joining.join),
    path("invitations/<str:secret>", joining.open_link),
    path("settings/tokens/<uuid:token_id>/revoke", settings.revoke),
    path("demo/sign-in", demo_sign_in),
]
