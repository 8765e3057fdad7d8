"""Stripe Connect in the stand-in: owners' accounts, transfers to them, reversals, their payouts.

Owners and their banks are played by `onboard`, `restrict`, `pay_out` and `bank_refuses`; somebody
at Stripe's own pages by `reverse`.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from tests.stripe_double.spec import Json, Operation, Wrong

if TYPE_CHECKING:
    from tests.stripe_double.double import StripeDouble

NEEDED = ["external_account", "individual.verification.document", "tos_acceptance.date"]
DAY = 86_400


def carry_out(double: StripeDouble, asked: Operation, name: str, params: Json) -> Json:
    """Answer a request about owners; None: it is about something else."""
    match asked.method, asked.path:
        case "POST", "/v1/accounts":
            return _account(double, params)
        case "POST", "/v1/account_links":
            double.one(params["account"])
            link = double.make("account_link", expires_at=int(time.time()) + 300)
            del double.objects[link.pop("id")]
            return link | {"url": f"{double.url}/setup/{secrets.token_hex(6)}"}
        case "POST", "/v1/accounts/{account}/login_links":
            if not double.one(name)["details_submitted"]:
                raise Wrong("Cannot create a login link for an account that is not onboarded.")
            link = double.make("login_link")
            del double.objects[link.pop("id")]
            return link | {"url": f"{double.url}/express/{name}"}
        case "POST", "/v1/transfers":
            return _transfer(double, params)
        case "GET", "/v1/transfers":
            group = params.get("transfer_group")
            found = [each for each in double.all_of("transfer") if each["transfer_group"] == group]
            return double.listed(found, asked.path, params)
        case "POST", "/v1/transfers/{id}/reversals":
            return reverse(double, name, params.get("amount"), params.get("metadata", {}))
        case "GET", "/v1/transfers/{id}/reversals":
            found = list(reversed(double.one(name)["reversals"]["data"]))
            return double.listed(found, asked.path, params)
    return None


def _account(double: StripeDouble, params: Json) -> Json:
    made = double.make(
        "account",
        type=params["type"],
        country=params.get("country", "US"),
        metadata=params.get("metadata", {}),
        capabilities={"transfers": "inactive"},
        charges_enabled=False,
        payouts_enabled=False,
        details_submitted=False,
        requirements=_wants("requirements.past_due", NEEDED),
    )
    _tell(double, made)
    return made


def _wants(reason: str | None, due: list[str], errors: list[Json] | None = None) -> Json:
    return {
        "alternatives": [],
        "current_deadline": None,
        "currently_due": due,
        "disabled_reason": reason,
        "errors": errors or [],
        "eventually_due": due,
        "past_due": due,
        "pending_verification": [],
    }


def _tell(double: StripeDouble, account: Json) -> None:
    double.tell("account.updated", account, account=account["id"])


def onboard(double: StripeDouble, account: str) -> None:
    """Let an owner tell Stripe all that it wants to know."""
    made = double.one(account)
    made |= {
        "capabilities": {"transfers": "active"},
        "charges_enabled": True,
        "payouts_enabled": True,
        "details_submitted": True,
        "requirements": _wants(None, []),
    }
    _tell(double, made)


def restrict(double: StripeDouble, account: str, why: str) -> None:
    """Let Stripe take no more money for an owner."""
    made = double.one(account)
    error = {"code": "verification_failed_other", "reason": why, "requirement": NEEDED[1]}
    made |= {
        "capabilities": {"transfers": "inactive"},
        "payouts_enabled": False,
        "requirements": _wants("requirements.past_due", [NEEDED[1]], [error]),
    }
    _tell(double, made)


def _transfer(double: StripeDouble, params: Json) -> Json:
    account = double.one(params["destination"])
    if account["capabilities"]["transfers"] != "active":
        raise Wrong(
            "Your destination account needs to have the transfers capability enabled.",
            code="insufficient_capabilities_for_transfer",
        )
    amount, currency = params["amount"], params["currency"]
    if amount > double.balance(currency):
        raise Wrong(
            "You have insufficient available funds in your Stripe account.",
            code="balance_insufficient",
        )
    made = double.make(
        "transfer",
        amount=amount,
        currency=currency,
        destination=account["id"],
        metadata=params.get("metadata", {}),
        transfer_group=params.get("transfer_group"),
    )
    made["reversals"]["url"] = f"/v1/transfers/{made['id']}/reversals"
    moved = double.move("transfer", -amount, made["id"], currency=currency)
    made["balance_transaction"] = moved["id"]
    double.tell("transfer.created", made)
    return made


def reverse(
    double: StripeDouble, transfer: str, amount: int | None = None, metadata: Json = None
) -> Json:
    """Take a part of a transfer back, or the rest of it."""
    paid = double.one(transfer)
    left = paid["amount"] - paid["amount_reversed"]
    amount = left if amount is None else amount
    if amount > left:
        raise Wrong(f"You cannot reverse {amount}: only {left} of the transfer is left.")
    if double.spent.get(paid["destination"], 0) + amount > paid["amount"]:
        raise Wrong("The connected account has insufficient funds.", code="balance_insufficient")
    made = double.make(
        "transfer_reversal",
        amount=amount,
        currency=paid["currency"],
        transfer=transfer,
        metadata=metadata or {},
    )
    moved = double.move("transfer_refund", amount, made["id"], currency=paid["currency"])
    made["balance_transaction"] = moved["id"]
    paid["amount_reversed"] += amount
    paid["reversed"] = paid["amount_reversed"] == paid["amount"]
    paid["reversals"]["data"].append(made)
    double.tell("transfer.reversed", paid)
    return made


def pay_out(double: StripeDouble, account: str, amount: int, *, currency: str = "usd") -> Json:
    """Let Stripe pay an owner's balance out to the owner's bank."""
    made = double.make(
        "payout",
        amount=amount,
        currency=currency,
        arrival_date=int(time.time()) + DAY,
        automatic=True,
        status="paid",
        method="standard",
        source_type="card",
        type="bank_account",
        reconciliation_status="completed",
    )
    double.owner_of[made["id"]] = account
    double.spent[account] = double.spent.get(account, 0) + amount
    double.tell("payout.paid", made, account=account)
    return made


def bank_refuses(double: StripeDouble, payout: str) -> None:
    """Let an owner's bank send a payout back."""
    made = double.one(payout)
    made |= {
        "status": "failed",
        "failure_code": "account_closed",
        "failure_message": "The bank account has been closed.",
    }
    account = double.owner_of[payout]
    double.spent[account] -= made["amount"]
    double.tell("payout.failed", made, account=account)
