"""Where the payment service tells us that something happened."""

from __future__ import annotations

from uuid import uuid4

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from ledger.domain.refusal import Invalid, Refusal
from ledger.funding import inbox
from ledger.payments.port import NoticeForged
from ledger.rest.problems import MEDIA_TYPE, problem_of


class NoticeNotSigned(Invalid):
    """This is not signed by the payment service, was changed on its way, or is too old.

    The signature covers the body as it was sent and holds for five minutes.
    """

    status = 400


@csrf_exempt
@require_POST
def stripe(request: HttpRequest) -> HttpResponse:
    """Keep a notice and say so at once; a loop looks into it."""
    try:
        inbox.take(request.body, request.headers.get("Stripe-Signature", ""), now=timezone.now())
    except NoticeForged:
        return _refused(request, NoticeNotSigned())
    except inbox.NotTaken as nobody:
        return _refused(request, nobody)
    return HttpResponse(status=200)


def _refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """Answer as the API does."""
    said = problem_of(refusal, instance=request.path, request_id=str(uuid4()))
    return JsonResponse(said, status=refusal.status, content_type=MEDIA_TYPE)
