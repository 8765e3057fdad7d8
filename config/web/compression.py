"""Pages are sent compressed, in a way that gives no secret away by its length (BREACH).

An attacker who has a victim's browser ask for a page that holds both a secret and what the
attacker chose could guess the secret from the compressed length. The only secret that a page
repeats is the token of its forms, which Django masks anew in each answer; a host's or a person's
token is shown in the one answer to a form that no other site can send. Django besides adds up to a
hundred random bytes. Answers of the API are left to the proxy (deploy/nginx): a foreign page
cannot send the bearer token that they need, and here they would cost each call a millisecond.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

API_PREFIX = "/api/"
TEXTS = ("text/html", "text/csv", "text/plain")


class PagesCompressed(GZipMiddleware):
    """Middleware: compress what people look at or download as text."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the response, compressed where it is a text and no answer of the API."""
        kind = response.headers.get("Content-Type", "")
        if request.path.startswith(API_PREFIX) or not kind.startswith(TEXTS):
            return response
        return super().process_response(request, response)
