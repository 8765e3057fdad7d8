"""Which scope opens what: each route of the API stands here, so a new one has to choose."""

from __future__ import annotations

import pytest

from ledger.domain.tokens import ROLES_OF_SCOPE, SCOPES, Scope, carries
from ledger.rest import ANY_SCOPE
from tests.access.conftest import Caller, admit
from tests.access.routes import all_routes

READS_BY_POST = {
    "bids/preview": "bids:read",
    "folders/<uuid:folder_id>/links": "files:read",
    "lab": "market:read",
    "offers/preview": "offers:read",
    "quotas/trials": "admin",
    "volumes/<str:volume>/links": "files:read",
}
"""What is asked with a body and writes nothing."""

WRITES = {
    "accounts": "billing:write",
    "accounts/<uuid:account_id>/budget": "billing:write",
    "accounts/<uuid:account_id>/funds": "billing:write",
    "accounts/<uuid:account_id>/automatic-top-up": "billing:write",
    "accounts/<uuid:account_id>/payment-methods/<str:method>": "billing:write",
    "accounts/<uuid:account_id>/refunds": "billing:write",
    "accounts/<uuid:account_id>/refunds/<uuid:refund_id>/approve": "billing:write",
    "accounts/<uuid:account_id>/refunds/<uuid:refund_id>/decline": "billing:write",
    "accounts/<uuid:account_id>/top-ups": "billing:write",
    "agent/enrolment": "agent",
    "agent/host": "agent",
    "agent/leases/<uuid:lease_id>/inputs": "agent",
    "agent/leases/<uuid:lease_id>/outputs": "agent",
    "agent/leases/<uuid:lease_id>/outputs/failed": "agent",
    "agent/leases/<uuid:lease_id>/outputs/missing": "agent",
    "agent/leases/<uuid:lease_id>/volumes/<str:volume>/failed": "agent",
    "agent/leases/<uuid:lease_id>/volumes/<str:volume>/missing": "agent",
    "agent/leases/<uuid:lease_id>/volumes/<str:volume>/read": "agent",
    "agent/leases/<uuid:lease_id>/volumes/<str:volume>/versions": "agent",
    "agent/logs": "agent",
    "agent/reports": "agent",
    "agent/samples": "agent",
    "agent/secrets": "agent",
    "agent/token": "agent",
    "agent/token/taken": "agent",
    "bank-files": "payouts:write",
    "bank-files/<uuid:file_id>/content": "payouts:write",
    "bank-notices": "payouts:write",
    "bids": "bids:write",
    "bids/<uuid:bid_id>": "bids:write",
    "bids/<uuid:bid_id>/chain": "bids:write",
    "bids/<uuid:bid_id>/idle-rule": "bids:write",
    "budgets": "billing:write",
    "budgets/<uuid:budget_id>": "billing:write",
    "budgets/<uuid:budget_id>/grants": "billing:write",
    "budgets/<uuid:budget_id>/grants/<uuid:grant_id>/approve": "billing:write",
    "budgets/<uuid:budget_id>/grants/<uuid:grant_id>/decline": "billing:write",
    "folders": "files:write",
    "folders/<uuid:folder_id>": "files:write",
    "folders/missing": "files:write",
    "hosts": "offers:write",
    "hosts/<uuid:host_id>": "offers:write",
    "hosts/<uuid:host_id>/enrolment-codes": "offers:write",
    "hosts/<uuid:host_id>/drain": "offers:write",
    "disputes": "billing:write",
    "disputes/<uuid:dispute_id>/dismiss": "billing:write",
    "disputes/<uuid:dispute_id>/statements": "billing:write",
    "disputes/<uuid:dispute_id>/uphold": "billing:write",
    "hosts/<uuid:host_id>/maintenance": "offers:write",
    "hosts/<uuid:host_id>/maintenance/<uuid:maintenance_id>": "offers:write",
    "hosts/<uuid:host_id>/pause": "offers:write",
    "hosts/<uuid:host_id>/release": "offers:write",
    "hosts/<uuid:host_id>/resume": "offers:write",
    "hosts/<uuid:host_id>/retire": "offers:write",
    "hosts/<uuid:host_id>/tokens": "offers:write",
    "billing-details": "billing:write",
    "credit-notes/<uuid:credit_id>/approve": "billing:write",
    "documents": "billing:write",
    "credit-notes/<uuid:credit_id>/decline": "billing:write",
    "invoices": "billing:write",
    "invoices/<str:number>/credit-notes": "billing:write",
    "invoices/<str:number>/payments": "billing:write",
    "invoices/<str:number>/write-off": "billing:write",
    "invoices/<str:number>/write-off/approve": "billing:write",
    "invoices/<str:number>/write-off/decline": "billing:write",
    "leases/<uuid:lease_id>": "leases:write",
    "leases/<uuid:lease_id>/access": "leases:write",
    "leases/<uuid:lease_id>/checkpoint": "leases:write",
    "leases/<uuid:lease_id>/extension": "leases:write",
    "leases/<uuid:lease_id>/heartbeats": "leases:write",
    "leases/<uuid:lease_id>/idle/keep": "leases:write",
    "leases/<uuid:lease_id>/prices": "leases:write",
    "leases/<uuid:lease_id>/prices/<uuid:proposal_id>/agree": "leases:write",
    "leases/<uuid:lease_id>/prices/<uuid:proposal_id>/decline": "leases:write",
    "leases/<uuid:lease_id>/reclaim": "offers:write",
    "leases/<uuid:lease_id>/resale": "leases:write",
    "leases/<uuid:lease_id>/resale/take": "offers:write",
    "offers": "offers:write",
    "offers/<uuid:offer_id>": "offers:write",
    "offers/<uuid:offer_id>/pause": "offers:write",
    "offers/<uuid:offer_id>/resume": "offers:write",
    "offers/<uuid:offer_id>/sla": "offers:write",
    "offers/<uuid:offer_id>/withdraw": "offers:write",
    "quotas/requests": "bids:write",
    "quotas/requests/<uuid:request_id>/take-up": "bids:write",
    "payees/<uuid:payee_id>/bank-details": "payouts:write",
    "payees/<uuid:payee_id>/bank-details/<uuid:details_id>/confirm": "payouts:write",
    "payees/<uuid:payee_id>/bank-details/<uuid:details_id>/withdraw": "payouts:write",
    "payees/<uuid:payee_id>/channel": "payouts:write",
    "payees/<uuid:payee_id>/schedule": "payouts:write",
    "payees/<uuid:payee_id>/settle": "payouts:write",
    "payees/<uuid:payee_id>/stripe": "payouts:write",
    "payees/<uuid:payee_id>/stripe/look": "payouts:write",
    "payees/<uuid:payee_id>/stripe/onboarding": "payouts:write",
    "payouts/<uuid:payout_id>/approve": "payouts:write",
    "payouts/<uuid:payout_id>/cancel": "payouts:write",
    "payouts/<uuid:payout_id>/paid": "payouts:write",
    "payouts/<uuid:payout_id>/returned": "payouts:write",
    "payouts/<uuid:payout_id>/reversals": "payouts:write",
    "self-billing": "payouts:write",
    "exports/mapping": "billing:write",
    "exports/plans": "billing:write",
    "exports/plans/<uuid:plan_id>": "billing:write",
    "exports/runs": "billing:read",
    "periods/<str:period>/close": "billing:write",
    "periods/<str:period>/reopening": "billing:write",
    "periods/<str:period>/reopening/approve": "billing:write",
    "periods/<str:period>/reopening/decline": "billing:write",
    "periods/<str:period>/soft-close": "billing:write",
    "notices/digest": "notices:write",
    "notices/read": "notices:write",
    "notices/wishes/<str:topic>": "notices:write",
    "secrets/<str:name>": "secrets:write",
    "tokens": "tokens:write",
    "tokens/<uuid:token_id>": "tokens:write",
    "volumes": "bids:write",
    "volumes/<str:volume>": "bids:write",
    "volumes/<str:volume>/missing": "files:write",
    "volumes/<str:volume>/versions": "files:write",
}
"""Everything else that writes needs `admin`."""

READS = {
    "accounts": "billing:read",
    "agent": "agent",
    "agents": "offers:read",
    "bank-files": "payouts:read",
    "bids": "bids:read",
    "billing-details": "billing:read",
    "budgets": "market:read",
    "budgets/<uuid:budget_id>/grants": "billing:read",
    "burst/bids/<uuid:bid_id>": "bids:read",
    "burst": "billing:read",
    "burst/home-moves": "leases:read",
    "burst/home-policy": "leases:read",
    "costs": "billing:read",
    "credit-notes": "billing:read",
    "receivables": "billing:read",
    "documents": "billing:read",
    "debts": "billing:read",
    "disputes": "billing:read",
    "earnings": "payouts:read",
    "exports": "billing:read",
    "folders": "files:read",
    "heat": "offers:read",
    "hosts": "offers:read",
    "idle-rule": "leases:read",
    "invoices": "billing:read",
    "leases": "leases:read",
    "listings": "market:read",
    "market": "market:read",
    "markets": "market:read",
    "members": "admin",
    "notices": "notices:read",
    "money-waits": "bids:read",
    "offers": "offers:read",
    "owed": "billing:read",
    "payees": "payouts:read",
    "payouts": "payouts:read",
    "self-billing": "payouts:read",
    "periods": "billing:read",
    "quotas": "market:read",
    "rounds": "market:read",
    "secrets": "secrets:read",
    "spend": "billing:read",
    "spending": "market:read",
    "subscribers": "market:read",
    "usage": "leases:read",
    "supply": "market:read",
    "tenants": "market:read",
    "tenants/<uuid:tenant_id>/accounts": "billing:read",
    "tenants/<uuid:tenant_id>/invitations": "admin",
    "tenants/<uuid:tenant_id>/members": "admin",
    "tokens": "tokens:read",
    "trial-balance": "billing:read",
    "volumes": "files:read",
    "webhooks": "admin",
    "workloads": "market:read",
}
"""By the first part of the address."""

ROUTES = [
    (route.text.removeprefix("api/v1/"), method, scope)
    for route in all_routes()
    if route.endpoint is not None
    for method, scope in sorted(route.endpoint.scopes.items())
    if route.text.startswith("api/v1/")
]


@pytest.mark.parametrize(("address", "method", "scope"), ROUTES)
def test_a_route_needs_the_scope_that_the_table_says(address: str, method: str, scope: str) -> None:
    if address == "me":
        assert (method, scope) == ("GET", ANY_SCOPE)
    elif method == "GET":
        assert scope == READS.get(address, READS[address.partition("/")[0]])
    elif method == "POST" and address in READS_BY_POST:
        assert scope == READS_BY_POST[address]
    else:
        assert scope == WRITES.get(address, "admin")


def test_nothing_but_who_one_is_is_told_under_any_scope() -> None:
    assert [route for route in ROUTES if route[2] == ANY_SCOPE] == [("me", "GET", ANY_SCOPE)]


NARROW = [scope for scope in SCOPES if scope not in ("agent", "admin") and "tokens:" not in scope]


@pytest.mark.django_db
@pytest.mark.parametrize("scope", NARROW)
def test_a_narrow_token_sees_makes_and_stops_no_token(scope: Scope) -> None:
    role = sorted(ROLES_OF_SCOPE[scope] - {"operator"})
    caller = admit("acme", "operator", *role, scopes=(scope,))
    asked = {"title": "x", "scopes": [scope]}

    assert caller.get("/api/v1/tokens").status_code == 403
    assert caller.get(f"/api/v1/tokens/{caller.token_id}").status_code == 403
    assert caller.post("/api/v1/tokens", asked).status_code == 403
    refused = caller.delete(f"/api/v1/tokens/{caller.token_id}")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope-missing")
    assert refused.json()["details"]["scope"] == "tokens:write"


@pytest.mark.django_db
def test_a_token_that_reads_tokens_stops_none_and_one_of_admin_does_both() -> None:
    reader = admit("acme", "consumer", scopes=("tokens:read",))
    admin = admit("other", "operator", scopes=("admin",))

    assert [each["title"] for each in reader.get("/api/v1/tokens").json()["data"]] == ["test"]
    assert reader.delete(f"/api/v1/tokens/{reader.token_id}").status_code == 403
    assert admin.get("/api/v1/tokens").status_code == 200
    assert "tokens:write" in admin.get("/api/v1/me").json()["scopes"]
    assert not carries(("admin",), "bids:write")


def test_the_agent_of_a_host_has_no_token_scope(ada: Caller) -> None:
    assert not ROLES_OF_SCOPE["agent"]
    assert not carries(("agent",), "tokens:read")
