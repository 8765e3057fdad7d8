"""A stand-in for Stripe over HTTP: every request and answer is checked by Stripe's own document.

What objects do (a card that is declined, a balance, a dispute) is ours. Payers and banks are
played by calling `pay`, `dispute` and the like; notices of it are kept in `notices`, and signed as
Stripe signs them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.stripe_double import bills, connect
from tests.stripe_double.spec import (
    Json,
    Operation,
    Wrong,
    blank_of,
    faults,
    faults_of_object,
    nested,
    operation,
    read,
)

KEY, SECRET = "sk_test_double", "whsec_double"
DECLINED = "0002"
"""The last digits of a card that is always declined."""
FEE_PPM, FEE_FIXED = 29_000, 30
PREFIXES = {
    "customer": "cus",
    "payment_intent": "pi",
    "checkout.session": "cs_test",
    "payment_method": "pm",
    "charge": "ch",
    "refund": "re",
    "dispute": "du",
    "balance_transaction": "txn",
    "account": "acct",
    "account_link": "link",
    "login_link": "link",
    "transfer": "tr",
    "transfer_reversal": "trr",
    "payout": "po",
    "event": "evt",
    "credit_note": "cn",
    "invoice": "in",
    "invoiceitem": "ii",
}


class StripeDouble:
    """The stand-in. faults: what was wrong with its own answers; must stay empty."""

    def __init__(self) -> None:
        """Begin with nothing; `start` listens on loopback."""
        self.objects: dict[str, Json] = {}
        self.answers: dict[str, tuple[str, int, Json]] = {}
        self.notices: list[Json] = []
        self.faults: list[str] = []
        self.requests: list[tuple[str, str, Json]] = []
        self.breaks: list[Callable[[str, str], str]] = []
        """Each is asked about a request: "" lets it be, "before" and "after" close the line
        before or after it is carried out, a number is answered in its place."""
        self.owner_of: dict[str, str] = {}
        """Whose payout to a bank it is."""
        self.spent: dict[str, int] = {}
        """What of an owner's account there left for a bank."""
        self.lock = threading.RLock()
        double = self

        class Handler(_Handler):
            stripe = double

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def start(self) -> StripeDouble:
        """Listen."""
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Listen no more."""
        self.server.shutdown()
        self.server.server_close()

    # --- objects ----------------------------------------------------------------------------

    def make(self, kind: str, **fields: Json) -> Json:
        """Keep a new object."""
        name = f"{PREFIXES[kind]}_{secrets.token_hex(9)}"
        made = blank_of(kind)
        made |= {"id": name, "object": kind, "created": int(time.time()), **fields}
        self.objects[name] = made
        return made

    def one(self, name: str) -> Json:
        """Return an object."""
        if name not in self.objects:
            raise Wrong(
                f"No such object: '{name}'", status=404, param="id", code="resource_missing"
            )
        return self.objects[name]

    def all_of(self, kind: str) -> list[Json]:
        """Return the objects of a kind, newest first."""
        return [each for each in reversed(self.objects.values()) if each["object"] == kind]

    def tell(self, kind: str, about: Json, *, account: str = "") -> Json:
        """Make a notice of what happened. account: whose account it is about; empty: our own."""
        about = _without_own(about)
        self.faults += faults_of_object(about["object"], about)
        notice = self.make(
            "event",
            type=kind,
            data={"object": json.loads(json.dumps(about))},
            livemode=False,
            pending_webhooks=1,
            **({"account": account} if account else {}),
        )
        self.notices.append(notice)
        return notice

    def move(self, kind: str, amount: int, source: str, *, currency: str, fee: int = 0) -> Json:
        """Change our balance."""
        return self.make(
            "balance_transaction",
            type=kind,
            amount=amount,
            fee=fee,
            net=amount - fee,
            currency=currency,
            source=source,
            status="available",
            available_on=int(time.time()),
            reporting_category=kind,
            balance_type="payments",
        )

    def balance(self, currency: str) -> int:
        """Return what we have, in minor units."""
        lines = self.all_of("balance_transaction")
        return sum(each["net"] for each in lines if each["currency"] == currency)

    def listed(self, found: list[Json], path: str, params: Json) -> Json:
        """Return a page of a list."""
        return _list(found, path, params)

    # --- what payers and banks do -------------------------------------------------------------

    def card(self, customer: str, last4: str = "4242") -> Json:
        """Let a payer have a card kept."""
        card = {
            "brand": "visa",
            "country": "US",
            "exp_month": 12,
            "exp_year": 2030,
            "funding": "credit",
            "last4": last4,
            "checks": None,
            "display_brand": "visa",
            "fingerprint": "x",
            "generated_from": None,
            "networks": None,
            "regulated_status": None,
            "three_d_secure_usage": None,
            "wallet": None,
        }
        made = self.make("payment_method", type="card", card=card, customer=customer)
        self.tell("payment_method.attached", made)
        return made

    def pay(self, session: str) -> Json:
        """Pay on a page; the card is kept where the page asks for that."""
        with self.lock:
            page = self.one(session)
            if page["status"] != "open":
                raise Wrong("The page is not open any more.")
            wanted = page.pop("_intent")
            keeps = wanted.get("setup_future_usage")
            method = self.card(page["customer"] if keeps else "")["id"]
            intent = self.make(
                "payment_intent",
                amount=page["amount_total"],
                amount_received=0,
                currency=page["currency"],
                customer=page["customer"],
                metadata=wanted.get("metadata", {}),
                payment_method=method,
                status="processing",
            )
            self.succeed(intent)
            page |= {
                "payment_intent": intent["id"],
                "status": "complete",
                "payment_status": "paid",
                "url": None,
            }
            self.tell("checkout.session.completed", page)
            return intent

    def expire(self, session: str) -> None:
        """Let a page run out."""
        page = self.one(session)
        page |= {"status": "expired", "url": None}
        page.pop("_intent", None)
        self.tell("checkout.session.expired", page)

    def succeed(self, intent: Json) -> None:
        """Let a payment come in."""
        charge = self.make(
            "charge",
            amount=intent["amount"],
            amount_captured=intent["amount"],
            captured=True,
            paid=True,
            status="succeeded",
            currency=intent["currency"],
            payment_intent=intent["id"],
            customer=intent["customer"],
            metadata=intent["metadata"],
        )
        fee = intent["amount"] * FEE_PPM // 1_000_000 + FEE_FIXED
        moved = self.move(
            "charge", intent["amount"], charge["id"], currency=intent["currency"], fee=fee
        )
        charge["balance_transaction"] = moved["id"]
        intent |= {
            "status": "succeeded",
            "amount_received": intent["amount"],
            "latest_charge": charge["id"],
        }
        self.tell("charge.succeeded", charge)
        self.tell("payment_intent.succeeded", intent)

    def dispute(self, intent: str, amount: int | None = None) -> Json:
        """Let a payer's bank take a payment back."""
        paid = self.one(intent)
        made = self.make(
            "dispute",
            amount=amount or paid["amount"],
            currency=paid["currency"],
            charge=paid["latest_charge"],
            payment_intent=intent,
            reason="fraudulent",
            status="needs_response",
        )
        self.move("adjustment", -made["amount"], made["id"], currency=paid["currency"], fee=1500)
        self.tell("charge.dispute.created", made)
        return made

    def decide(self, dispute: str, status: str) -> None:
        """Let the bank decide: won or lost."""
        made = self.one(dispute)
        made["status"] = status
        if status == "won":
            self.move("adjustment", made["amount"], made["id"], currency=made["currency"])
        self.tell("charge.dispute.closed", made)

    def bounce(self, refund: str) -> None:
        """Let a refund come back."""
        made = self.one(refund)
        made |= {"status": "failed", "failure_reason": "lost_or_stolen_card"}
        charge = self.one(made["charge"])
        charge["amount_refunded"] -= made["amount"]
        charge["refunded"] = False
        self.move("refund_failure", made["amount"], made["id"], currency=made["currency"])
        self.tell("refund.failed", made)

    # --- notices --------------------------------------------------------------------------------

    @staticmethod
    def signed(notice: Json, *, at: float | None = None) -> tuple[bytes, str]:
        """Return a notice as it is sent: its body, and its signature."""
        body = json.dumps(notice).encode()
        moment = int(time.time() if at is None else at)
        mac = hmac.new(SECRET.encode(), f"{moment}.".encode() + body, hashlib.sha256)
        return body, f"t={moment},v1={mac.hexdigest()}"

    # --- requests -------------------------------------------------------------------------------

    def answer(self, method: str, target: str, body: str, headers: Any) -> tuple[int, Json]:
        """Answer one request."""
        try:
            with self.lock:
                return self._answer(method, target, body, headers)
        except Wrong as wrong:
            return wrong.status, wrong.body

    def _answer(self, method: str, target: str, body: str, headers: Any) -> tuple[int, Json]:
        if headers.get("Authorization") != f"Bearer {KEY}":
            raise Wrong("Invalid API Key provided.", status=401)
        address = urlsplit(target)
        asked, ids = operation(method, address.path)
        text = body if method == "POST" else address.query
        params = read(nested(parse_qsl(text, keep_blank_values=True)), asked.asked())
        self.requests.append((method, address.path, params))
        key = headers.get("Idempotency-Key")
        digest = hashlib.sha256(f"{method} {target} {body}".encode()).hexdigest()
        if key and key in self.answers:
            before, status, said = self.answers[key]
            if before != digest:
                raise Wrong(
                    "Keys for idempotent requests can only be used with the same parameters they "
                    "were first used with.",
                    kind="idempotency_error",
                )
            return status, said
        try:
            self._need_account(ids, headers)
            status, said = 200, self._carry_out(asked, ids, params)
        except Wrong as wrong:
            # Once work on a request began, its answer is kept under its key, whatever it is.
            began = wrong.status == 402 or wrong.body["error"].get("code") == "balance_insufficient"
            if began and key:
                self.answers[key] = (digest, wrong.status, wrong.body)
            raise
        shown = json.loads(json.dumps(_without_own(said)))
        found = faults(asked, shown)
        self.faults += [f"{method} {asked.path}: {each}" for each in found]
        if key:
            self.answers[key] = (digest, status, shown)
        return status, shown

    def _need_account(self, ids: dict[str, str], headers: Any) -> None:
        """Refuse to show an owner's payout to who does not ask in the owner's name."""
        name = ids.get("payout", "")
        if self.owner_of.get(name, "") != (headers.get("Stripe-Account") or ""):
            raise Wrong(f"No such payout: '{name}'", status=404, code="resource_missing")

    def _carry_out(self, asked: Operation, ids: dict[str, str], params: Json) -> Json:
        name = next(iter(ids.values()), "")
        of_owners = connect.carry_out(self, asked, name, params)
        if of_owners is not None:
            return of_owners
        match asked.method, asked.path:
            case "POST", "/v1/customers":
                return self.make("customer", **{"metadata": {}, **params})
            case "POST", "/v1/checkout/sessions":
                return self._page(params)
            case "POST", "/v1/payment_intents":
                return self._charge(params)
            case "POST", "/v1/refunds":
                return self._refund(params)
            case "POST", "/v1/payment_methods/{payment_method}/detach":
                method = self.one(name)
                if not method["customer"]:
                    raise Wrong("The payment method is not attached to a customer.")
                method["customer"] = None
                self.tell("payment_method.detached", method)
                return method
            case "GET", "/v1/refunds":
                mine = [
                    each
                    for each in self.all_of("refund")
                    if each["payment_intent"] == params.get("payment_intent")
                ]
                return _list(mine, asked.path, params)
            case "GET", "/v1/balance_transactions":
                span = params.get("created", {})
                mine = [
                    each
                    for each in self.all_of("balance_transaction")
                    if span.get("gte", 0) <= each["created"] < span.get("lt", 2**40)
                ]
                return _list(mine, asked.path, params)
            case _ if (bill := bills.carry_out(self, asked, name, params)) is not None:
                return bill
            case "GET", _ if name:
                return self.one(name)
        raise Wrong(f"The double does not know {asked.method} {asked.path} yet.", status=501)

    def _page(self, params: Json) -> Json:
        self.one(params["customer"])
        [line] = params["line_items"]
        price = line["price_data"]
        made = self.make(
            "checkout.session",
            amount_total=int(price["unit_amount"]) * line.get("quantity", 1),
            currency=price["currency"],
            customer=params["customer"],
            client_reference_id=params.get("client_reference_id"),
            metadata=params.get("metadata", {}),
            mode=params["mode"],
            status="open",
            payment_status="unpaid",
            success_url=params["success_url"],
            cancel_url=params["cancel_url"],
            expires_at=int(time.time()) + 86_400,
            payment_intent=None,
        )
        made["url"] = f"{self.url}/pay/{made['id']}"
        made["_intent"] = params.get("payment_intent_data", {})
        return made

    def _charge(self, params: Json) -> Json:
        method = params["payment_method"]
        if self.one(method).get("customer") != params["customer"]:
            raise Wrong("The payment method is not attached to this customer.")
        made = self.make(
            "payment_intent",
            amount=params["amount"],
            amount_received=0,
            currency=params["currency"],
            customer=params["customer"],
            metadata=params.get("metadata", {}),
            payment_method=method,
            status="requires_payment_method",
        )
        if self.one(method)["card"]["last4"] == DECLINED:
            self.tell("payment_intent.payment_failed", made)
            raise Wrong(
                "Your card was declined.",
                status=402,
                kind="card_error",
                code="card_declined",
                decline_code="generic_decline",
            )
        self.succeed(made)
        return made

    def _refund(self, params: Json) -> Json:
        paid = self.one(params["payment_intent"])
        charge = self.one(paid["latest_charge"])
        left = charge["amount"] - charge["amount_refunded"]
        amount = params.get("amount", left)
        if left == 0:
            raise Wrong("The charge has already been refunded.", code="charge_already_refunded")
        if amount > left:
            raise Wrong(f"Refund amount ({amount}) is greater than unrefunded amount ({left}).")
        charge["amount_refunded"] += amount
        charge["refunded"] = charge["amount_refunded"] == charge["amount"]
        made = self.make(
            "refund",
            amount=amount,
            currency=paid["currency"],
            charge=charge["id"],
            payment_intent=paid["id"],
            metadata=params.get("metadata", {}),
            status="succeeded",
        )
        moved = self.move("refund", -amount, made["id"], currency=paid["currency"])
        made["balance_transaction"] = moved["id"]
        self.tell("charge.refunded", charge)
        self.tell("refund.created", made)
        return made


def _list(found: list[Json], path: str, params: Json) -> Json:
    names = [each["id"] for each in found]
    begin = names.index(params["starting_after"]) + 1 if "starting_after" in params else 0
    limit = params.get("limit", 10)
    some = found[begin : begin + limit]
    return {
        "object": "list",
        "url": path,
        "has_more": len(found) > begin + limit,
        "data": [_without_own(each) for each in some],
    }


def _without_own(said: Json) -> Json:
    return {key: value for key, value in said.items() if not key.startswith("_")}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stripe: StripeDouble

    def log_message(self, *told: object) -> None:
        """Say nothing."""

    def _go(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        path = urlsplit(self.path).path
        how = next((word for each in self.stripe.breaks if (word := each(method, path))), "")
        if how.isdigit():
            self._send(int(how), {"error": {"type": "api_error", "message": "Come again."}})
            return
        status = 0
        answer: Json = {}
        if how != "before":
            status, answer = self.stripe.answer(method, self.path, body, self.headers)
        if how:
            self.close_connection = True
            return
        self._send(status, answer)

    def _send(self, status: int, said: Json) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Request-Id", f"req_{secrets.token_hex(6)}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """Answer."""
        self._go("GET")

    def do_POST(self) -> None:
        """Answer."""
        self._go("POST")

    def do_DELETE(self) -> None:
        """Answer."""
        self._go("DELETE")
