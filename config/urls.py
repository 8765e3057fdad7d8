"""Every address of the site."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView

from bursting.urls import api_urls as bursting_api
from config.operations import health
from config.site.manual import pages as manual
from config.site.pages.account import by_mail
from config.site.pages.urls import page_urls
from config.site.parts.gallery import gallery
from config.web import issuer
from config.web.insiders import for_insiders, in_short
from ledger.api import payment_notices
from ledger.urls import api_urls as ledger_api
from listings.urls import api_urls as listings_api
from marketplace.urls import api_urls as marketplace_api
from metering.urls import api_urls as metering_api

api_urls = [*ledger_api, *listings_api, *marketplace_api, *metering_api, *bursting_api]

urlpatterns: list[URLPattern | URLResolver] = [
    *page_urls,
    path("docs/", manual.contents),
    path("docs/<slug:slug>/", manual.chapter),
    path("accounts/oidc/", include(issuer.urls)),
    path("accounts/", include(by_mail.urls)),
    path("accounts/", include("allauth.urls")),
    path("api/v1/", include(api_urls)),
    path("api/openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("webhooks/stripe", payment_notices.stripe),
    path("healthz", health.healthz),
    path("readyz", in_short(health.readyz)),
    path("metrics", for_insiders(health.metrics)),
]
if settings.ENV.demo or settings.DEBUG:
    urlpatterns.append(path("gallery/", gallery))

handler400 = "config.web.errors.bad_request"
handler403 = "config.web.errors.forbidden"
handler404 = "config.web.errors.not_found"
handler500 = "config.web.errors.server_error"
handler429 = "config.web.errors.too_many_tries"
