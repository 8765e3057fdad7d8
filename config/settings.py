"""Django's settings, all derived from `env.Env`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from config import VERSION
from config.address import LOOPBACK_HOSTS, is_everywhere, is_loopback, read_host
from config.database.address import AddressUnclear, read_address
from config.database.private import keep_private
from config.database.roles import SERVES
from config.env import Env, read_env
from config.security.secrets import secret_key
from config.security.single_signon import oidc_providers
from config.web.proxies import read_networks
from ledger.domain.addresses import Network
from ledger.domain.events import Role
from listings.domain.markets import MarketsUnclear, read_markets

BASE_DIR = Path(__file__).resolve().parent.parent
ENV = read_env(os.environ)
HOME = (BASE_DIR / ENV.home).resolve()
KERNELS = (BASE_DIR / ENV.kernels).resolve() if ENV.kernels else HOME / "kernels"
try:
    MARKETS = read_markets(ENV.market, ENV.markets)
except MarketsUnclear as unclear:
    raise SystemExit(f"OFFPEAK_MARKETS: {unclear}") from None


def _database(env: Env) -> dict[str, Any]:
    common = {
        "ENGINE": "config.database",
        # Web threads keep their connection; a health check finds one that the server dropped.
        "CONN_MAX_AGE": 300,
        "CONN_HEALTH_CHECKS": True,
    }
    if not env.database_url:
        options: dict[str, Any] = {
            "embedded_home": str(HOME),
            "connect_timeout": str(env.database_connect_seconds),
        }
        return {**common, "NAME": "offpeak", "USER": SERVES, "OPTIONS": options}
    try:
        return {
            **common,
            **read_address(env.database_url, connect_seconds=env.database_connect_seconds),
        }
    except AddressUnclear as unclear:
        raise SystemExit(f"DATABASE_URL {unclear}") from None


def _hosts(env: Env) -> list[str]:
    """Return every name the site goes by: `allowed_hosts` only adds to what is known anyway."""
    names = [*LOOPBACK_HOSTS]
    if env.base_url:
        names.append(read_host(urlsplit(env.base_url).hostname or ""))
    if not is_everywhere(env.host):
        names.append(read_host(env.host))
    return list(dict.fromkeys([*names, *filter(None, env.allowed_hosts.split(","))]))


if (ENV.demo or ENV.debug) and not (
    is_loopback(ENV.host) and is_loopback(urlsplit(ENV.base_url).hostname or "localhost")
):
    raise SystemExit(
        "A demo or debug market has open log-ins: it is served on loopback only. Unset OFFPEAK_HOST"
        " and OFFPEAK_BASE_URL, or OFFPEAK_DEMO and OFFPEAK_DEBUG."
    )


def _networks(variable: str, text: str) -> tuple[Network, ...]:
    try:
        return read_networks(text)
    except ValueError as unclear:
        raise SystemExit(
            f"{variable} must be addresses and networks, such as 10.0.0.5,192.168.7.0/24,"
            f" not {str(unclear)!r}"
        ) from None


TRUSTED_PROXIES = _networks("OFFPEAK_TRUSTED_PROXIES", ENV.trusted_proxies)
SECOND_FACTOR_ROLES = frozenset(filter(None, ENV.second_factor_roles.replace(" ", "").split(",")))
if SECOND_FACTOR_ROLES - set(get_args(Role)):
    raise SystemExit(f"OFFPEAK_SECOND_FACTOR_ROLES must be of {', '.join(get_args(Role))}")
WATCHERS = _networks("OFFPEAK_WATCHERS", ENV.watchers)
keep_private(HOME)
SECRET_KEY = secret_key(ENV, HOME)
DEBUG = ENV.debug
LOGGING_CONFIG = "config.logs.setup.configure"
LOGGING = {"env": ENV, "secret_key": SECRET_KEY}
DEFAULT_EXCEPTION_REPORTER_FILTER = "config.logs.reports.NothingOfOurs"
ALLOWED_HOSTS = _hosts(ENV)
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
WSGI_APPLICATION = "config.wsgi.application"
DATABASES = {"default": _database(ENV)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-gb"
USE_I18N = False
SITE_ID = 1

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "ledger",
    "listings",
    "marketplace",
    "metering",
    "bursting",
    "config.apps.SiteConfig",
]

MIDDLEWARE = [
    "config.web.naming.by_our_name",
    "django.middleware.security.SecurityMiddleware",
    "config.web.csp.debug_stays_here",
    "config.web.csp.security_headers",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.web.compression.PagesCompressed",
    "config.web.errors.pages_for_bare_answers",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.web.visitors.Visitors",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "config" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "ledger.signin.demo_people",
                "config.site.shell.shell",
            ]
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "config" / "static"]
STATIC_ROOT = HOME / "static"
# Our own files alone: those of the frameworks are for pages that we do not serve.
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
STORAGES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = DEBUG

AUTH_USER_MODEL = "ledger.Person"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "CommonPasswordValidator")
] + [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    }
]
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
# People come by invitation: an operator admits an address, which signs in here or by OIDC.
ACCOUNT_ADAPTER = "ledger.signin.ByInvitation"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SESSION_REMEMBER = True
# Log-ins are counted once for all processes, and a restart forgets none of them.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "site_cache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}
# Wrong passwords are counted for an account as tried from one address (`ByInvitation`): others'
# mistakes, of whom we may see a proxy only, keep nobody out who knows the password.
ACCOUNT_RATE_LIMITS = {"login": "300/m/ip", "login_failed": "5/5m/key"}
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Offpeak"
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
SOCIALACCOUNT_PROVIDERS = oidc_providers(ENV)
# The issuer is the installation's own choice, so the addresses it has verified are believed.
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True

EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend"
    if ENV.mail_host
    else "django.core.mail.backends.dummy.EmailBackend"  # pages say that no mail is sent
)
EMAIL_HOST, EMAIL_PORT = ENV.mail_host, ENV.mail_port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = ENV.mail_user, ENV.mail_password
EMAIL_USE_TLS, EMAIL_USE_SSL = ENV.mail_security == "starttls", ENV.mail_security == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.mail_from or "offpeak@localhost"

SECURE = ENV.base_url.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = False  # the proxy in front does that; behind it we see plain http
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_TRUSTED_ORIGINS = [ENV.base_url] if ENV.base_url else []
CSRF_FAILURE_VIEW = "config.web.errors.csrf_failure"
DATA_UPLOAD_MAX_MEMORY_SIZE = ENV.request_bytes_max

CHANNEL_LAYERS: dict[str, Any] = (
    {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            # Waiting for a message is no failure of the connection, however long it takes.
            "CONFIG": {"hosts": [{"address": ENV.redis_url, "socket_timeout": None}]},
        }
    }
    if ENV.redis_url
    else {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
)

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_SCHEMA_CLASS": "ledger.rest.schema.ApiSchema",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Offpeak",
    "DESCRIPTION": "A market for GPU time. Conventions: /docs/api/.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SCHEMA_PATH_PREFIX": "/api/v1",
}
