"""Invoices and credit notes over HTTP: issuing, reading, PDF, and credit by two people."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import invoicing, queries
from ledger.access import Actor
from ledger.api.invoice_shapes import (
    AskCreditNote,
    BillingDetailsShape,
    CreditNoteShape,
    CreditNoteWritten,
    InvoiceShape,
    InvoicesWritten,
    IssueInvoices,
    SetBillingDetails,
    detail_shown,
    details_said,
    invoice_shown,
    note_shown,
    refused_shown,
)
from ledger.commands import invoices as commands
from ledger.domain.accounts import AccountUnknown
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.invoice_events import CreditedLine
from ledger.domain.parties import PLATFORM_ID, SubscriberUnknown
from ledger.domain.periods import read_period
from ledger.papers import file_of_credit_note, file_of_invoice
from ledger.queries import invoices as found
from ledger.rest import Endpoint
from ledger.rest.rendering import PlainJson
from ledger.rest.schema import WrittenAt

READS = ("ledger.invoices", "ledger.money")
PERIOD = OpenApiParameter("period", description="Only those of a month, such as 2026-11.")
KIND = OpenApiParameter("kind", enum=["invoice", "internal", "receipt"])
PDF = {(200, "application/pdf"): OpenApiTypes.BINARY}


class Invoices(Endpoint):
    """The invoices that the actor's organisation got or issued."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = READS

    @extend_schema(parameters=[PERIOD, KIND], responses=InvoiceShape(many=True))
    def get(self, request: Request) -> Response:
        """List them, those of the newest month first."""
        rows = found.invoices(self.actor)
        if period := request.query_params.get("period"):
            rows = rows.filter(period=str(read_period(period)))
        if kind := request.query_params.get("kind"):
            rows = rows.filter(kind=kind)
        return self.page(rows, invoice_shown, found.NEWEST_INVOICES)

    @extend_schema(request=IssueInvoices, responses={201: InvoicesWritten})
    def post(self, request: Request) -> Response:
        """Issue the invoices of a month that is at least soft-closed: of one account, or of all.

        `issued` names them. `refused` says which accounts could not be invoiced, and why. `left` is
        how many are still to be invoiced: ask again.
        """
        asked, user_id = self.body(IssueInvoices), platform_person(self.actor)
        period, now = read_period(asked["period"]), timezone.now()
        if asked.get("account_id") is None:
            outcome = invoicing.issue_month(
                self.store(), period, user_id=user_id, by=self.meta(), now=now
            )
            return Response(
                {
                    "issued": list(outcome.issued),
                    "refused": [refused_shown(each) for each in outcome.refused],
                    "left": outcome.left,
                    "position": outcome.position,
                },
                status=201,
            )
        account = invoicing.account_to_invoice(AccountId(asked["account_id"]))
        if account is None:
            raise AccountUnknown(account_id=asked["account_id"])
        invoice_id, position = invoicing.issue_one(
            self.store(), account, period, user_id=user_id, by=self.meta(), now=now
        )
        said = {"issued": [invoice_id], "refused": [], "left": 0, "position": position}
        return Response(said, status=201)


class InvoiceDetail(Endpoint):
    """One invoice."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=InvoiceShape)
    def get(self, request: Request, number: str) -> Response:
        """Show it, with its lines, taxes and what was credited of it."""
        return Response(detail_shown(found.invoice(self.actor, number)))


class DocumentFile(Endpoint):
    """A document as a file."""

    scopes = {}

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """Answer the file, or a problem as JSON."""
        return PlainJson(), "application/json"


class InvoiceFile(DocumentFile):
    """An invoice as PDF."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=PDF)
    def get(self, request: Request, number: str) -> HttpResponse:
        """Send it: the same bytes each time."""
        row = found.invoice(self.actor, number)
        return sent(file_of_invoice(row), row.number)


class InvoiceCreditNotes(Endpoint):
    """The credit notes of an invoice."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=AskCreditNote, responses={201: CreditNoteWritten})
    def post(self, request: Request, number: str) -> Response:
        """Ask to credit lines of it, or without lines all that is left; somebody else approves."""
        row = found.invoice(self.actor, number)
        asked, user_id = self.body(AskCreditNote), platform_person(self.actor)
        position = commands.ask_credit_note(
            self.store(),
            credit_id=self.command_id,
            invoice_id=row.pk,
            lines=[
                CreditedLine(line_id=each["line_id"], nanos=each["amount"])
                for each in asked.get("lines") or ()
            ],
            reason=asked["reason"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"credit_id": self.command_id, "position": position}, status=201)


class CreditNotes(Endpoint):
    """Credit notes of invoices that the actor may see."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=CreditNoteShape(many=True))
    def get(self, request: Request) -> Response:
        """List them, those asked for last first."""
        return self.page(found.credit_notes(self.actor), note_shown, found.NEWEST_CREDIT_NOTES)


class CreditNoteDetail(Endpoint):
    """One credit note."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=CreditNoteShape)
    def get(self, request: Request, credit_id: UUID) -> Response:
        """Show it."""
        return Response(note_shown(found.credit_note(self.actor, credit_id)))


class CreditNoteFile(DocumentFile):
    """An issued credit note as PDF."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=PDF)
    def get(self, request: Request, credit_id: UUID) -> HttpResponse:
        """Send it: the same bytes each time."""
        row = found.credit_note(self.actor, credit_id)
        of = found.invoice(self.actor, row.invoice_number)
        return sent(file_of_credit_note(row, of), row.number)


class CreditNoteApproved(Endpoint):
    """Issuing a credit note."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, credit_id: UUID) -> Response:
        """Approve what somebody else asked for."""
        user_id = platform_person(self.actor)
        position = commands.approve_credit_note(
            self.store(), credit_id, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class CreditNoteDeclined(Endpoint):
    """Issuing no credit note."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, credit_id: UUID) -> Response:
        """Decline what somebody asked for, or take back what one asked oneself."""
        user_id = platform_person(self.actor)
        position = commands.decline_credit_note(
            self.store(), credit_id, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class BillingDetails(Endpoint):
    """How the actor's organisation and its units are named on invoices."""

    scopes = {"GET": "billing:read", "PUT": "billing:write"}
    reads = ("ledger.invoices", "ledger.parties")

    @extend_schema(responses=BillingDetailsShape(many=True))
    def get(self, request: Request) -> Response:
        """List them."""
        return self.page(found.billing_details(self.actor), details_said, ("party_id",))

    @extend_schema(request=SetBillingDetails, responses=WrittenAt)
    def put(self, request: Request) -> Response:
        """Say how the organisation, or one of its units, is named from now on.

        Taxes and the days until invoices are due are of the platform, which issues them.
        """
        asked = self.body(SetBillingDetails)
        party_id = asked.get("subscriber_id") or self.actor.tenant_id
        if asked.get("subscriber_id") is not None:
            units = queries.subscribers(self.actor).filter(pk=party_id)
            if not units.exists():
                raise SubscriberUnknown(subscriber_id=party_id)
        position = commands.set_billing_details(
            self.store(),
            party_id=party_id,
            tenant_id=TenantId(self.actor.tenant_id),
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
            **SetBillingDetails.terms(asked, issues=self.actor.tenant_id == PLATFORM_ID),
        )
        return Response({"position": position})


def platform_person(actor: Actor) -> UserId:
    """Return who issues or credits. Raises: InvoicesByPlatformOnly, PersonNeeded."""
    if not actor.has_platform_money:
        raise invoicing.InvoicesByPlatformOnly()
    return actor.need_person()


def sent(data: bytes, name: str) -> HttpResponse:
    """Answer a document as a file to be kept."""
    return HttpResponse(
        data,
        content_type="application/pdf",
        headers={"Content-Disposition": f'attachment; filename="{name}.pdf"'},
    )
