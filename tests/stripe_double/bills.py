"""Invoices of the stand-in: drafts with lines, finalized, sent, paid or not.

`pay_bill`, `try_to_pay` and `end` play who pays, and what people do in Stripe's dashboard.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.stripe_double.spec import Json, Operation, Wrong, blank_of

if TYPE_CHECKING:
    from tests.stripe_double.double import StripeDouble

ENDS = {
    "paid": "invoice.paid",
    "void": "invoice.voided",
    "uncollectible": "invoice.marked_uncollectible",
}


def carry_out(double: StripeDouble, asked: Operation, name: str, params: Json) -> Json | None:
    """Answer what is asked about invoices; None: it is about something else."""
    match asked.method, asked.path:
        case "POST", "/v1/invoices":
            return _draft(double, params)
        case "POST", "/v1/invoiceitems":
            return _line(double, params)
        case "POST", "/v1/invoices/{invoice}/finalize":
            bill = _in_state(double, name, "draft")
            bill |= {
                "status": "open",
                "hosted_invoice_url": f"{double.url}/i/{name}",
                "amount_due": bill["total"],
                "amount_remaining": bill["total"],
            }
            double.tell("invoice.finalized", bill)
            return bill
        case "GET", "/v1/invoice_payments":
            wanted = params["payment"]
            found = [
                each
                for bill in double.all_of("invoice")
                for each in bill["payments"]["data"]
                if each["payment"]["payment_intent"] == wanted["payment_intent"]
            ]
            return double.listed(found, asked.path, params)
        case "POST", "/v1/credit_notes":
            return _credit(double, params)
        case "POST", "/v1/invoices/{invoice}/send":
            bill = _in_state(double, name, "open")
            double.tell("invoice.sent", bill)
            return bill
        case "POST", "/v1/invoices/{invoice}/pay":
            if not params.get("paid_out_of_band"):
                raise Wrong("There is no payment method.", status=402, kind="card_error")
            return end(double, name, "paid")
        case "POST", "/v1/invoices/{invoice}/mark_uncollectible":
            return end(double, name, "uncollectible")
        case "POST", "/v1/invoices/{invoice}/void":
            return end(double, name, "void")
    return None


def _draft(double: StripeDouble, params: Json) -> Json:
    customer = double.one(params["customer"])
    if params.get("collection_method") == "send_invoice" and not customer.get("email"):
        raise Wrong(
            "Missing email. In order to create invoices that are sent to the customer, "
            "the customer must have a valid email.",
            code="customer_no_email",
        )
    number = params.get("number")
    if any(each.get("number") == number for each in double.all_of("invoice")):
        raise Wrong("This invoice number is taken.", code="invoice_number_taken")
    lists = {"object": "list", "data": [], "has_more": False, "url": "/v1/invoices"}
    return double.make(
        "invoice",
        customer=params["customer"],
        collection_method=params["collection_method"],
        auto_advance=False,
        currency=params["currency"],
        number=number,
        metadata=params.get("metadata", {}),
        due_date=int(time.time()) + 86_400 * params["days_until_due"],
        status="draft",
        lines={**lists, "data": []},
        payments={**lists, "data": []},
    )


def _line(double: StripeDouble, params: Json) -> Json:
    bill = _in_state(double, params["invoice"], "draft")
    made = double.make(
        "invoiceitem",
        amount=params["amount"],
        currency=params["currency"],
        customer=params["customer"],
        description=params["description"],
        invoice=bill["id"],
        quantity=1,
        quantity_decimal="1",
    )
    for name in ("total", "subtotal"):
        bill[name] += params["amount"]
    return made


def _credit(double: StripeDouble, params: Json) -> Json:
    bill = _in_state(double, params["invoice"], "open")
    amount = params["amount"]
    if not 0 < amount <= bill["amount_remaining"]:
        raise Wrong("The sum of credit amount must be at most what is left of the invoice.")
    for name in ("amount_due", "amount_remaining"):
        bill[name] -= amount
    bill["pre_payment_credit_notes_amount"] += amount
    made = double.make(
        "credit_note",
        amount=amount,
        currency=bill["currency"],
        customer=bill["customer"],
        invoice=bill["id"],
        memo=params.get("memo"),
        status="issued",
    )
    double.tell("credit_note.created", made)
    if not bill["amount_remaining"]:
        bill["status"] = "paid"
        double.tell("invoice.paid", bill)
    return made


def _in_state(double: StripeDouble, name: str, status: str) -> Json:
    bill = double.one(name)
    if bill["status"] != status:
        raise Wrong(f"This invoice is {bill['status']}.", code="invoice_not_editable")
    return bill


def end(double: StripeDouble, name: str, status: str) -> Json:
    """Let an open invoice be paid elsewhere, voided or given up."""
    bill = _in_state(double, name, "open")
    bill["status"] = status
    double.tell(ENDS[status], bill)
    return bill


def pay_bill(double: StripeDouble, name: str, amount: int | None = None) -> Json:
    """Let who pays pay an invoice on its page; with all of it, it is paid."""
    with double.lock:
        bill = _in_state(double, name, "open")
        intent = _intent(double, bill, amount or bill["amount_remaining"])
        double.succeed(intent)
        _paid_with(bill, intent, "paid", intent["amount"])
        bill["amount_paid"] += intent["amount"]
        bill["amount_remaining"] -= intent["amount"]
        if bill["amount_remaining"] <= 0:
            bill["status"] = "paid"
            double.tell("invoice.paid", bill)
        return intent


def try_to_pay(double: StripeDouble, name: str, words: str = "Your card was declined.") -> None:
    """Let a try to pay an invoice fail."""
    bill = _in_state(double, name, "open")
    intent = _intent(double, bill, bill["amount_remaining"])
    error: Any = {"type": "card_error", "message": words, "code": "card_declined"}
    intent |= {"status": "requires_payment_method", "last_payment_error": error}
    _paid_with(bill, intent, "open", 0)
    double.tell("invoice.payment_failed", bill)


def _intent(double: StripeDouble, bill: Json, amount: int) -> Json:
    return double.make(
        "payment_intent",
        amount=amount,
        amount_received=0,
        currency=bill["currency"],
        customer=bill["customer"],
        metadata={},
        status="processing",
    )


def _paid_with(bill: Json, intent: Json, status: str, amount: int) -> None:
    made = blank_of("invoice_payment")
    made |= {
        "id": f"inpay_{intent['id']}",
        "amount_paid": amount,
        "amount_requested": intent["amount"],
        "created": int(time.time()),
        "currency": bill["currency"],
        "invoice": bill["id"],
        "payment": {"type": "payment_intent", "payment_intent": intent["id"]},
        "status": status,
    }
    bill["payments"]["data"] = [*bill["payments"]["data"], made]
