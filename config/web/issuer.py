"""Single sign-on where the issuer fails: a page of ours that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import structlog
from allauth.socialaccount.providers.openid_connect import views
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from requests import RequestException
from requests.exceptions import HTTPError, InvalidJSONError, Timeout

from config.security.single_signon import discovery_of
from config.web.errors import show
from ledger.domain.refusal import Refusal

ANSWER_SECONDS_MAX = settings.SOCIALACCOUNT_REQUESTS_TIMEOUT

log = structlog.get_logger()
View = Callable[..., HttpResponse]


class SingleSignOnFails(Refusal):
    """The organisation's single sign-on cannot be used at the moment.

    Sign in with a password if you have one, or try again later; an operator can look whether the
    issuer is up, and whether OFFPEAK_OIDC_ISSUER_URL is its address.
    """

    status = 503


def told(view: View) -> View:
    """Let a view of single sign-on tell what is wrong with the issuer, on a page of ours."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except (RequestException, ValueError, LookupError, TypeError, AttributeError) as failure:
            # The last four are what allauth raises where the issuer's description lacks something.
            reason = _reason(failure)
            log.warning("single-sign-on.fails", reason=reason)
            return show(request, SingleSignOnFails(reason=reason), back=settings.LOGIN_URL)

    return answered


def _reason(failure: Exception) -> str:
    where = discovery_of(settings.ENV)
    match failure:
        case HTTPError() if failure.response is not None:
            return f"{where} answered {failure.response.status_code}"
        case Timeout():
            return f"{where} did not answer within {ANSWER_SECONDS_MAX} seconds"
        case InvalidJSONError() | ValueError():
            return f"{where} did not answer with JSON"
        case RequestException():
            return f"{where} cannot be reached"
        case KeyError():
            return f"{where} does not say {failure.args[0]}"
        case _:
            return f"{where} answered with something else than a description of an issuer"


urls: list[URLPattern] = [
    path("<str:provider_id>/login/", told(views.login), name="openid_connect_login"),
    path("<str:provider_id>/login/callback/", told(views.callback), name="openid_connect_callback"),
]
"""Before allauth's own, at the same addresses."""
