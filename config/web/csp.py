"""The Content-Security-Policy of every page. Django has one built in from 6.0 on; this is 5.2."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from ledger.access.visits import is_from_this_machine
from marketplace.storage import default_storage

HEADER = "Content-Security-Policy"

# Nothing inline and nothing from elsewhere: no script or style in the page's own text can run,
# so text that slips through escaping is only text. Images may be data: for the browser's own use.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'{issuer}{work}; "
    "frame-ancestors 'none'; connect-src 'self' {sockets}{storage}"
)
NOT_KEPT = "no-store"
VARIES = ("Cookie", "Authorization")
"""Every answer may hold what one organisation alone may see: nobody keeps it on the way."""
PERMISSIONS = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


def security_headers(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: add the policy to every response that does not bring its own."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault(HEADER, policy_for(request))
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        if "Cache-Control" not in response.headers:
            # What says of itself how long it holds (static files, the icon) is for everybody.
            response.headers["Cache-Control"] = NOT_KEPT
            patch_vary_headers(response, VARIES)
        return response

    return answer


def debug_stays_here(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: serve a debug market to its own machine alone, by whatever server it runs."""

    def answer(request: HttpRequest) -> HttpResponse:
        if settings.DEBUG and not is_from_this_machine(request):
            return HttpResponse("OFFPEAK_DEBUG=1: served on loopback only.\n", status=403)
        return get_response(request)

    return answer


def policy_for(request: HttpRequest) -> str:
    """Return the policy; sockets are named because 'self' covers them only in newer browsers."""
    return policy_of(request.get_host(), secure=request.is_secure())


def policy_of(host: str, *, secure: bool) -> str:
    """Return the policy of a site that is reached as `host`."""
    scheme = "wss" if secure else "ws"
    work = _work(host, secure=secure)
    sockets, storage = f"{scheme}://{host}", "".join(f" {each}" for each in _storage())
    return POLICY.format(sockets=sockets, storage=storage, issuer=_issuer(), work=work)


def _work(host: str, *, secure: bool) -> str:
    """Return the origins of leased work: a form leads on to one."""
    domain = settings.ENV.work_domain
    if not domain:
        return ""
    _name, _, port = host.rpartition(":")
    return f" {'https' if secure else 'http'}://*.{domain}{f':{port}' if port.isdigit() else ''}"


def _storage() -> tuple[str, ...]:
    """Return where blobs are kept that a page sends: a bucket elsewhere, and nothing beside it."""
    return default_storage().elsewhere


def _issuer() -> str:
    """Return the single sign-on's origin: a form's redirect must be allowed to go there."""
    address = urlsplit(settings.ENV.oidc_issuer_url)
    return f" {address.scheme}://{address.netloc}" if address.netloc else ""
