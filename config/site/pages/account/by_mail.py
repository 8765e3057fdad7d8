"""Pages that would send a mail: without a mail server they promise none."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from allauth.account import views
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path

from ledger.inviting import can_mail

View = Callable[..., HttpResponseBase]


def _if_mail_goes(view: View) -> View:
    """Show what to do instead where there is no mail server; otherwise what `view` shows."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        return view(request) if can_mail() else _no_mail(request)

    return answer


def _no_mail(request: HttpRequest) -> HttpResponse:
    sent = request.method == "POST"
    status = HTTPStatus.CONFLICT if sent else HTTPStatus.OK
    return render(request, "account/no_mail.html", status=status)


urls: list[URLPattern] = [
    path("password/reset/", _if_mail_goes(views.password_reset)),
    path("password/reset/done/", _if_mail_goes(views.password_reset_done)),
    path("email/", _if_mail_goes(views.email)),
    path("confirm-email/", _if_mail_goes(views.email_verification_sent)),
]
